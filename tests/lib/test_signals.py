"""Who is told of a signal, and when it raises."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator

import jax.numpy as jnp
import pytest

from blocc._lib.compiled import compile_ahead
from blocc._lib.signals import USUAL, Listener, Shield, Waiting, listening, unbroken


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before = {number: signal.signal(number, handler) for number, handler in USUAL.items()}
    yield
    assert {number: signal.getsignal(number) for number in USUAL} == USUAL
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", USUAL)
def test_the_first_signal_leaves_a_mark_and_the_second_raises(number: signal.Signals) -> None:
    outer, inner = Listener(), Listener()
    with listening(outer), listening(inner):
        signal.raise_signal(number)
        assert outer.heard is inner.heard is number
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    later = Listener()
    with listening(outer), listening(later):
        assert later.heard is number  # from the one around it


def test_who_waits_is_broken_off() -> None:
    around, waiting = Listener(), Waiting()
    with listening(around):
        with pytest.raises(KeyboardInterrupt), listening(waiting):
            signal.raise_signal(signal.SIGINT)
        assert around.heard is waiting.heard is signal.SIGINT


def test_a_shield_keeps_signals_from_those_within() -> None:
    around, within, later = Listener(), Listener(), Listener()
    with listening(around), listening(Shield()):
        with listening(within):
            signal.raise_signal(signal.SIGTERM)
        with listening(later):
            pass
    assert (around.heard, within.heard, later.heard) == (signal.SIGTERM, None, None)


def test_a_compilation_comes_to_its_end() -> None:
    ended = []

    def traced(x: jnp.ndarray) -> jnp.ndarray:
        signal.raise_signal(signal.SIGINT)
        ended.append(True)
        return 2.0 * x

    with listening(Waiting()), pytest.raises(KeyboardInterrupt):
        compile_ahead(traced, jnp.ones(2))
    assert ended == [True]
    with listening(Waiting()), pytest.raises(KeyboardInterrupt), unbroken(), unbroken():
        signal.raise_signal(signal.SIGINT)


def test_other_handlers_and_other_threads_are_left_alone() -> None:
    own = lambda number, frame: None  # noqa: E731
    signal.signal(signal.SIGTERM, own)
    with listening(Listener()):
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGINT) is not USUAL[signal.SIGINT]
    signal.signal(signal.SIGTERM, USUAL[signal.SIGTERM])

    def elsewhere() -> None:
        with listening(Listener()), unbroken():
            seen.append(signal.getsignal(signal.SIGINT))

    seen: list[object] = []
    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [USUAL[signal.SIGINT]]
