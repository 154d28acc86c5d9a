"""Requests to stop from outside: SIGINT (Ctrl-C) and SIGTERM.

A KeyboardInterrupt in the middle of a compilation can crash the process at its end, and one in a callback of JAX is
lost. So a signal first leaves a mark with everybody who listens. An exception follows only where the innermost listener
does not look at its mark, or has one already, and never in the middle of a compilation.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: What asks a program to stop, and the handlers that Python begins with. Any other handler is left alone.
USUAL: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
}


class Listener:
    """Who is told of a signal."""

    looks = True  #: at the mark, soon; otherwise the work is broken off by a KeyboardInterrupt
    shields = False  #: those within: they are not told, and go on to their end
    heard: signal.Signals | None = None  #: the mark
    times = 0  #: how often, in its own time

    def hear(self, number: signal.Signals) -> None:
        """Take note of a signal."""
        self.heard = number


class Waiting(Listener):
    """Who cannot look, because it waits for others or runs what is not ours."""

    looks = False


class Shield(Listener):
    """Lets what is done within come to its end; a second signal breaks it off."""

    shields = True


_listeners: list[Listener] = []  #: of the main thread, from the outermost on
_taken: dict[signal.Signals, Any] = {}  #: signals whose handler is ours at present, and the one before
_replaceable: list[Any] = []  #: handlers besides Python's own that may be replaced
_lost: list[bool] = []  #: exceptions that were raised where nothing can be broken off
_held: list[bool] = []  #: for each block in which no exception may be raised, whether one is due


def _handle(number: int, frame: Any) -> None:
    innermost = _listeners[-1]
    innermost.times += 1
    for listener in _listeners:
        listener.hear(signal.Signals(number))
        if listener.shields:
            break
    if innermost.looks and innermost.times == 1:
        return
    if _held:
        _held[-1] = True
        return
    raise KeyboardInterrupt


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """In this block ``listener`` is told of signals, and of one that those around it have heard before.

    Only in the main thread, and only where Python's own handlers are in place, each by itself (in the background SIGINT
    is ignored, SIGTERM is not). They are put back at the end of the outermost block.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    outermost = not _listeners
    if not outermost and not _listeners[-1].shields and (earlier := _listeners[-1].heard) is not None:
        listener.hear(earlier)
    _listeners.append(listener)
    if outermost:
        _taken.clear()
        for number, default in USUAL.items():
            before = signal.getsignal(number)
            if before is default or before in _replaceable:
                _taken[number] = before
                signal.signal(number, _handle)
    try:
        yield
    finally:
        if outermost:
            _held.append(False)  # there is nothing left to break off
            for number, before in _taken.items():
                signal.signal(number, before)
            _held.pop()
        _listeners.pop()


@contextmanager
def taking_over(handler: Any) -> Iterator[None]:
    """In this block ``handler`` may be replaced like those that Python begins with; it is put back as they are.

    For programs that are ours. An exception that was lost in a callback, such as JAX's of the garbage collection, is
    raised again at the end of the next :func:`unbroken` block, unless somebody looks at the mark by then.
    """
    usual = sys.unraisablehook

    def lose(lost: Any) -> None:
        if issubclass(lost.exc_type, KeyboardInterrupt):
            _lost.append(True)
        else:
            usual(lost)

    _replaceable.append(handler)
    sys.unraisablehook = lose
    try:
        yield
    finally:
        sys.unraisablehook = usual
        _lost.clear()
        _replaceable.remove(handler)


@contextmanager
def unbroken() -> Iterator[None]:
    """No exception of a signal in this block: one that is due is raised at its end."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    _held.append(False)
    try:
        yield
    finally:
        due = _held.pop()
        if due and _held:
            _held[-1] = True
    if _lost and _listeners and not _listeners[-1].looks:
        due = True
    if due and not _held:
        _lost.clear()
        raise KeyboardInterrupt
