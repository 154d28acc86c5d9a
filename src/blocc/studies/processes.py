"""Batches in processes of this machine, each with one thread; a process that dies costs nothing but time.

Each worker has one batch at a time. So it is known which batch a worker died of, and only that one is charged an
attempt. The workers are fresh interpreters, never forks: JAX has threads, and their locks would stay locked for ever in
a fork. They do not import the main program again: a script needs no guard.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Generator, Sequence
from typing import IO, Any

from blocc._lib.version import __version__
from blocc.studies.compute import Outcome
from blocc.studies.executors import ONE_THREAD
from blocc.studies.study import Study, StudyError
from blocc.studies.worker import READY

ATTEMPTS = 3  #: workers that may die of one batch before it counts as failed
STARTS = 3  #: workers in a row that may die before they are ready
_GRACE = 2.0  #: seconds for a worker to end by itself
_LOOK = 1.0  #: seconds between two looks at whether workers are alive

_Event = tuple["_Worker", "str | None"]  #: a line from a worker, or None: there will be no more


class ProcessExecutor:
    """Worker processes on this machine.

    :param workers: how many; by default as many as this process may use cores
    """

    name = "processes"

    def __init__(self, workers: int | None = None) -> None:
        self.workers = available_cores() if workers is None else workers

    def run(self, study: Study, batches: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these batches, in the order in which workers come to them."""
        pool = _Pool(study, batches)
        try:
            pool.start(min(self.workers, len(batches)))
            while pool.unfinished:
                outcome = pool.next_outcome()
                if outcome is not None:
                    yield outcome
        finally:
            pool.end()


def available_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class _Worker:
    """One process and the batch it is computing."""

    def __init__(self, events: queue.SimpleQueue[_Event], greeting: str) -> None:
        self.batch: int | None = None
        self.ready = False
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)  # also finds what only we can import
        self.process = subprocess.Popen(
            # -P: the folder we are in is on the path only if it is on ours
            [sys.executable, "-P", "-m", "blocc.studies.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
            text=True,
            encoding="utf-8",
        )
        self.tell(greeting)
        threading.Thread(target=self._listen, args=(self.process.stdout, events), daemon=True).start()

    def _listen(self, stream: IO[str], events: queue.SimpleQueue[_Event]) -> None:
        with stream:
            for line in stream:
                events.put((self, line))
        events.put((self, None))

    def tell(self, message: str) -> None:
        """Send one line; a worker that is dead cannot hear, which is noticed elsewhere."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(message + "\n")
            self.process.stdin.flush()
        except OSError:
            pass

    def hang_up(self) -> None:
        """The worker ends when it hears nothing more."""
        try:
            assert self.process.stdin is not None
            self.process.stdin.close()
        except OSError:  # what could not be sent to a dead worker
            pass

    def end(self, deadline: float) -> int:
        """Wait for the process to end, until then gently; its exit code."""
        try:
            return self.process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:  # compiled code can hold the interpreter for long
            self.process.kill()
            return self.process.wait()

    def cause_of_death(self) -> str:
        """How the process ended."""
        code = self.end(time.monotonic() + _GRACE)
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


class _Pool:
    """The workers, and what is still to do."""

    def __init__(self, study: Study, batches: Sequence[int]) -> None:
        self._greeting = json.dumps([study.to_json(), __version__])
        self._waiting = deque(batches)
        self._workers: set[_Worker] = set()
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._deaths: Counter[int] = Counter()
        self._false_starts = 0
        self.unfinished = len(batches)

    def start(self, count: int) -> None:
        """Start processes; they get their first batch when they are ready."""
        for _ in range(count):
            self._workers.add(_Worker(self._events, self._greeting))

    def next_outcome(self) -> Outcome | None:
        """Wait a moment for news; an outcome, if that is what they are."""
        try:
            worker, line = self._events.get(timeout=_LOOK)
        except queue.Empty:
            # Its end of the pipe may live on in a process that it has started itself.
            dead = [worker for worker in self._workers if worker.process.poll() is not None]
            return self._bury(dead[0]) if dead else None
        if worker not in self._workers:
            return None
        if line is None:
            return self._bury(worker)
        message: Any = json.loads(line)
        self._false_starts = 0
        worker.ready, worker.batch = True, None
        if self._waiting:
            worker.batch = self._waiting.popleft()
            worker.tell(json.dumps(worker.batch))
        if message == READY:
            return None
        self.unfinished -= 1
        attempts = self._deaths[message["index"]] + 1
        return Outcome(**{**message, "rows": tuple(message["rows"]), "attempts": attempts})

    def _bury(self, worker: _Worker) -> Outcome | None:
        """Replace a worker that died; its batch goes to another one, or is given up."""
        self._workers.remove(worker)
        worker.hang_up()
        cause = worker.cause_of_death()
        batch = worker.batch
        outcome = None
        if not worker.ready:
            self._false_starts += 1
            if self._false_starts >= STARTS:
                raise StudyError(
                    f"worker processes cannot start ({cause}); what they said is above. Finished cells are kept"
                )
        if batch is not None:
            self._deaths[batch] += 1
            if self._deaths[batch] < ATTEMPTS:
                self._waiting.append(batch)
            else:
                self.unfinished -= 1
                reason = f"the worker died {ATTEMPTS} times while it computed this batch (the last time: {cause})"
                name = f"process {worker.process.pid}"
                outcome = Outcome(batch, (), reason, 0.0, name, ATTEMPTS)
        if self._waiting or not self._workers:
            self.start(1 if self.unfinished else 0)
        return outcome

    def end(self) -> None:
        """End all workers, whatever they are doing."""
        for worker in self._workers:
            worker.hang_up()
        deadline = time.monotonic() + _GRACE
        for worker in self._workers:
            worker.end(deadline)
        self._workers.clear()
