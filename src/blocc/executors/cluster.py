"""Work on a Dask cluster: one that is running already, or one of processes on this machine.

Dask repeats what a worker was doing when it died. At most one piece for each thread of the cluster is handed out at a
time: a worker that dies then takes nothing with it but its own piece, and Ctrl-C leaves nothing behind on a cluster
that others use, too. Every wait has an end, because a scheduler that is gone sends no more messages.

A scheduler without TLS authenticates nobody: every program that can connect to it can run any code on its workers.
"""

from __future__ import annotations

import logging
import queue
import time
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from importlib.metadata import version as installed_version
from typing import Any

from blocc._lib.threads import call_within
from blocc._lib.version import __version__
from blocc.errors import OptionError
from blocc.executors.processes import ONE_THREAD
from blocc.executors.work import Call, ExecutorError, Outcome, Work

_ANSWER = 30.0  #: seconds for the scheduler to answer
_LOOK = 1.0  #: seconds between two looks at whether the cluster is alive
_logger = logging.getLogger(__name__)


class DaskExecutor:
    """Workers of a Dask cluster.

    Without ``security`` there is no authentication: every program that can connect to the scheduler can run code as
    you. The one that is started here listens on 127.0.0.1 alone, that is, to every user of this machine. A line in the
    log says so.

    :param workers: of a cluster that is started on this machine; by default as many as there are cores
    :param scheduler: address of a scheduler that is running; one of Dask's clusters or a ``distributed.Client`` will do
    :param patience: seconds to wait while the cluster has no worker at all
    :param security: a ``distributed.Security`` with the certificates of a cluster that talks TLS; by default, what
        Dask's own configuration says
    """

    name = "dask"

    def __init__(
        self, workers: int | None = None, scheduler: Any = None, *, patience: float = 300.0, security: Any = None
    ) -> None:
        distributed = _distributed()  # say at once that it is missing
        if security is not None and not isinstance(security, distributed.Security):
            raise OptionError(f"security must be a distributed.Security, got {type(security).__name__}")
        if security is not None and isinstance(scheduler, distributed.Client):
            raise OptionError("give security or a client, not both: a distributed.Client brings its own certificates")
        from dask.system import CPU_COUNT  # cores that this process may use

        self._own_workers: int = int(CPU_COUNT) if workers is None else workers
        self.workers = self._own_workers if scheduler is None else 0
        self._scheduler = scheduler
        self._patience = patience
        self._security = security

    def run(self, work: Work, indices: Sequence[int]) -> Generator[Outcome, None, None]:
        """Compute these pieces, in the order in which workers come to them."""
        with self._connected(len(indices)) as client:
            _check_workers(client, work, self._patience)
            submitted = _Submissions(client, work, indices, self._patience)
            try:
                while submitted.unfinished:
                    outcome = submitted.next_outcome()
                    self.workers = submitted.threads
                    if outcome is not None:
                        yield outcome
            finally:
                submitted.cancel()

    @contextmanager
    def _connected(self, most: int) -> Iterator[Any]:
        distributed = _distributed()
        import dask

        if isinstance(self._scheduler, distributed.Client):
            yield self._scheduler
            return
        with ExitStack() as stack:
            address = self._scheduler
            if address is None:
                # On a machine with much else to do, a new worker comes late. Dask must not give up the place it left.
                # Workers must not be forks of this process: JAX has threads, and its locks would stay locked.
                settings = {
                    "distributed.deploy.lost-worker-timeout": f"{self._patience} s",
                    "distributed.worker.multiprocessing-method": "spawn",
                }
                stack.enter_context(dask.config.set(settings))
                # No limit of memory: Dask would kill a worker at its share, and processes have no such limit either.
                try:
                    address = distributed.LocalCluster(
                        n_workers=min(self._own_workers, most),
                        threads_per_worker=1,
                        processes=True,
                        memory_limit=0,
                        dashboard_address="127.0.0.1:0",
                        env=ONE_THREAD,
                        security=self._security,
                    )
                except (RuntimeError, OSError) as error:
                    raise ExecutorError(
                        f"a Dask cluster cannot start on this machine ({error}). In a script, it must be started below "
                        "if __name__ == '__main__', because each worker imports the script"
                    ) from error
                stack.callback(_close_quietly, address.close, _ANSWER)
            try:
                client = distributed.Client(address, timeout=_ANSWER, set_as_default=False, security=self._security)
            except (OSError, ValueError, TypeError) as error:
                raise ExecutorError(f"no Dask scheduler answers at {address}: {error}") from error
            stack.callback(_close_quietly, client.close, _ANSWER)
            _warn_without_authentication(client)
            yield client


def _distributed() -> Any:
    """Dask's package, which is optional."""
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ExecutorError("executor='dask' needs Dask: pip install 'blocc[cluster]'") from error
    return distributed


def _warn_without_authentication(client: Any) -> None:
    """A line in the log where the scheduler asks for no certificate."""
    address = str(getattr(client.scheduler, "address", ""))
    if address.startswith(("tls://", "wss://", "inproc://")):
        return
    who = "every user of this machine" if address.startswith("tcp://127.0.0.1:") else "everyone who can reach it"
    _logger.warning(
        "the Dask scheduler at %s asks for no authentication: %s can run code as its workers' user. "
        "DaskExecutor(security=distributed.Security(...)) asks for certificates",
        address,
        who,
    )


def _close_quietly(close: Any, timeout: float) -> None:
    """Close something that may be dead already."""
    with suppress(OSError, RuntimeError, CancelledError):
        close(timeout=timeout)


def _check_workers(client: Any, work: Work, patience: float) -> None:
    """See that the workers have the same package and what the work needs, before any work is given to them."""
    try:
        client.wait_for_workers(1, timeout=patience)
        # A function of the standard library: it also runs where another blocc is installed, or none.
        for worker, found in _ask_all(client, (installed_version, "blocc")).items():
            if isinstance(found, str) and found != __version__:
                raise ExecutorError(
                    f"the Dask worker at {worker} has blocc {found}, but this program is blocc {__version__}: "
                    "install the same version everywhere"
                )
        for worker, answer in _ask_all(client, work.check()).items():
            if isinstance(answer, BaseException):
                raise ExecutorError(f"the Dask worker at {worker} refuses: {answer}")
    except TimeoutError as error:
        raise ExecutorError(f"no Dask worker has come within {patience:.0f} s") from error
    except (OSError, CancelledError) as error:
        raise ExecutorError(f"the Dask scheduler is gone ({error})") from error


def _ask_all(client: Any, call: Call) -> dict[str, Any]:
    """What each worker answers, or the exception it raises; Dask would wait without end for one that is stuck."""
    try:
        return call_within(2 * _ANSWER, lambda: client.run(*call, on_error="return"))
    except TimeoutError:
        raise ExecutorError(f"a Dask worker has not answered for {2 * _ANSWER:.0f} s") from None


class _Submissions:
    """The pieces that were submitted, and those that wait."""

    def __init__(self, client: Any, work: Work, indices: Sequence[int], patience: float) -> None:
        self._client = client
        self._address = getattr(client.scheduler, "address", "an unknown address")  # the client forgets it at the end
        self._work = work
        self._waiting = deque(indices)
        self._running: dict[Any, int] = {}
        self._finished: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._patience = patience
        self._seen = self._looked = time.monotonic()
        self.threads = 1
        self.unfinished = len(indices)
        self._look()

    def _look(self) -> None:
        """How many threads are there now? Raises where the cluster is dead."""
        self._looked = time.monotonic()
        try:
            threads = self._client.sync(self._client.scheduler.ncores, callback_timeout=_ANSWER)
        except (OSError, AttributeError, RuntimeError, CancelledError) as error:
            raise self._lost(error) from error
        self.threads = sum(threads.values())
        if self.threads:
            self._seen = self._looked
        elif self._looked - self._seen > self._patience:
            raise ExecutorError(f"the cluster has had no worker for {self._patience:.0f} s")

    def _lost(self, error: BaseException) -> ExecutorError:
        what = str(error).partition("\n")[0] or type(error).__name__
        return ExecutorError(f"the connection to the Dask scheduler at {self._address} is lost ({what})")

    def next_outcome(self) -> Outcome | None:
        """Hand out what there is room for, and wait a moment for news; an outcome, if that is what they are."""
        while self._waiting and len(self._running) < max(1, self.threads):
            if (call := self._work.call(self._waiting[0])) is None:
                self.unfinished -= len(self._waiting)
                self._waiting.clear()
                break
            index = self._waiting.popleft()
            # A name no other task on the cluster has; Dask would otherwise hand out an old result.
            key = f"blocc-{self._work.name}-{index}-{time.time_ns()}"
            future = self._client.submit(*call, key=key, pure=False)
            self._running[future] = index
            future.add_done_callback(self._finished.put)
        if not self._running:
            return None
        try:
            future = self._finished.get(timeout=_LOOK)
        except queue.Empty:
            self._look()
            return None
        outcome = self._outcome_of(future)
        if outcome is not None:
            del self._running[future]
            self.unfinished -= 1
        if time.monotonic() - self._looked > _LOOK:
            self._look()
        return outcome

    def _outcome_of(self, future: Any) -> Outcome | None:
        index = self._running[future]
        try:
            outcome: Outcome = future.result(timeout=_ANSWER)
            return outcome
        except _distributed().KilledWorker as error:
            deaths = error.allowed_failures + 1
            last = str(getattr(error.last_worker, "address", error.last_worker))
            reason = f"the worker died {deaths} times while it computed this (the last time: {last})"
            return Outcome(index, None, reason, 0.0, last, deaths)
        except TimeoutError:  # a worker died with the outcome before it could be fetched: it is computed again
            future.add_done_callback(self._finished.put)
            return None
        except (OSError, CancelledError) as error:
            raise self._lost(error) from error
        except Exception as error:  # what the work raises is an outcome; this is the worker that refuses
            raise ExecutorError(f"a Dask worker cannot compute: {error}") from error

    def cancel(self) -> None:
        """Leave nothing on the cluster."""
        if self._running and self._client.status == "running":
            with suppress(OSError, RuntimeError, CancelledError):
                self._client.cancel(list(self._running))
