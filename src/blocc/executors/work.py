"""Work in pieces that know nothing of each other, and what whoever computes them must offer."""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from blocc._lib.signals import Waiting, listening
from blocc.errors import BloccError

_TAIL = 4000  #: characters kept of a traceback; its end says most

#: A function and its arguments, all of which can travel.
Call = tuple[Any, ...]


class ExecutorError(BloccError):
    """Workers cannot start, refuse or are gone: no outcome can come any more."""


@dataclass(frozen=True)
class Outcome:
    """What became of one piece of work.

    :param value: what was computed; nothing of use where it failed
    :param error: why it failed; the first line is a summary, the end of the traceback follows
    :param attempts: how often it was begun, workers that died included
    """

    index: int
    value: Any
    error: str | None
    seconds: float
    worker: str
    attempts: int = 1


class Work(Protocol):
    """Pieces of work, each known by its index."""

    @property
    def name(self) -> str:
        """For the names of tasks on a cluster."""

    def check(self) -> Call:
        """A call that every worker elsewhere makes before any piece is given to it, and must be able to make."""

    def call(self, index: int) -> Call | None:
        """The call that returns a piece's :class:`Outcome`, when a worker is free for it; None: not wanted any more."""


@runtime_checkable
class Executor(Protocol):
    """Computes pieces of work in any order, and yields each outcome as soon as it is there.

    An executor knows nothing about files. Closing the generator ends all workers that were started for it. A piece that
    fails, or whose worker dies again and again, is an outcome with an error; only where no outcome can come any more,
    it raises :class:`ExecutorError`.
    """

    @property
    def name(self) -> str:
        """``serial``, ``processes`` or ``dask``."""

    @property
    def workers(self) -> int:
        """How many pieces are computed at once; may change during a run, and be 0 before it."""

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these pieces."""


def begin(call: Call) -> Outcome:
    """Make a call here and now."""
    function: Callable[..., Outcome] = call[0]
    return function(*call[1:])


@contextmanager
def arriving(executor: Executor, work: Work, indices: Sequence[int]) -> Iterator[Iterator[Outcome]]:
    """The outcomes of a run; all workers end with the block, and a signal breaks off the wait for them."""
    waiting = nullcontext() if executor.name == "serial" else listening(Waiting())
    with waiting, closing(executor.run(work, indices)) as outcomes:
        yield outcomes


def explain(error: BaseException) -> str:
    """An error as text: a summary in the first line, then the end of its traceback."""
    summary = traceback.format_exception_only(error)[-1].strip()
    # The first frame is the engine's own, and says nothing.
    frames = error.__traceback__.tb_next if error.__traceback__ is not None else None
    trace = "".join(traceback.format_tb(frames)).rstrip()
    text = f"{summary}\n{trace[-_TAIL:]}" if trace else summary
    return text.encode("utf-8", "backslashreplace").decode("utf-8")  # texts in files may not hold every character


def worker_name() -> str:
    """Who computes here: the process and its machine."""
    return f"process {os.getpid()} on {socket.gethostname()}"
