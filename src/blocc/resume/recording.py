"""What a run has computed so far, in order, so that it can be continued without computing it again.

A run is a function of its evaluations: given the same answers, it asks the same questions. So a run is continued by
running it again from its start and answering its questions out of the recording, until the recording ends; from there
on it computes. That takes no time worth mentioning, needs nothing to be known about the method that asks (not even
about the state that SciPy keeps), and the rest of the run is the same, bit by bit, as if there had been no break. Loops
that are compiled ask no questions; they keep their whole state here instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable
from weakref import WeakValueDictionary

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.warning import warn_caller
from blocc.errors import BloccError

#: Beyond this many bytes nothing more is written down; a continued run then repeats what came after.
LARGEST = 512 * 2**20
#: Writing may take this share of the time at most.
_SHARE = 0.05


class CheckpointError(BloccError):
    """A checkpoint cannot be written, cannot be read, or belongs to another run."""


class Entry(NamedTuple):
    """One question and its answer."""

    label: str  #: who asked what
    inputs: np.ndarray
    outputs: np.ndarray
    time: float  #: seconds since the start


@dataclass(frozen=True)
class HistoryState:
    """The monitor's part of a state that is kept."""

    rows: list[Any]
    count: int  #: how many of the rows belong to the state; later ones may follow in the same list
    iterations: int
    stride: int
    position: np.ndarray | None


class Kept(NamedTuple):
    """The state of a compiled loop: the leaves of its tree, and the history so far."""

    leaves: list[Any]
    log: HistoryState


@runtime_checkable
class Owner(Protocol):
    """Who asks, and has warm starts that the next question depends on."""

    def warm_leaves(self) -> list[np.ndarray] | None:
        """The warm starts as plain arrays; None where nothing was evaluated yet."""
        ...


@dataclass
class Recorded:
    """The content of a recording: plain data."""

    entries: list[Entry] = field(default_factory=list)
    kept: dict[str, Kept] = field(default_factory=dict)
    warm: dict[str, list[np.ndarray]] = field(default_factory=dict)  #: leaves, by owner
    seconds: float = 0.0  #: of all parts of the run so far


class Recording:
    """Answers what was asked before, writes down what is new, and asks for itself to be saved now and then.

    Without ``save`` it does neither: an ordinary run has an idle one.
    """

    def __init__(
        self, recorded: Recorded | None = None, save: Callable[[Recorded], None] | None = None, seconds: float = 5.0
    ) -> None:
        self.recorded = recorded or Recorded()
        self.earlier = self.recorded.seconds  #: seconds of the earlier parts of the run
        self.trouble = ""  #: why the last attempt to save failed
        self.full = False  #: something was not written down for want of room
        self._save, self._interval = save, seconds
        self._cursor = 0
        self._size = sum(entry.inputs.nbytes + entry.outputs.nbytes for entry in self.recorded.entries)
        self._begun = self._saved = time.perf_counter()
        self._pause = seconds
        self._owners: WeakValueDictionary[str, Any] = WeakValueDictionary()
        self._registered = 0
        self._changed = False

    # --- one question after the other ---------------------------------------------------------------------------
    @property
    def active(self) -> bool:
        """Whether anything is written down."""
        return self._save is not None

    @property
    def replaying(self) -> bool:
        """Whether the next question is expected to be an old one."""
        return self._cursor < len(self.recorded.entries)

    @property
    def time(self) -> float:
        """While replaying: seconds since the start at the last answer."""
        return self.recorded.entries[self._cursor - 1].time if self._cursor else 0.0

    def register(self, owner: Owner) -> str:
        """A name for someone who asks. Runs build their parts in a fixed order, so that it is always the same."""
        name = str(self._registered)
        self._registered += 1
        if self.active:
            self._owners[name] = owner
        return name

    def recall(self, label: str, inputs: np.ndarray) -> np.ndarray | None:
        """The answer to an old question, or None for a new one."""
        if not self.replaying:
            return None
        entry = self.recorded.entries[self._cursor]
        if entry.label != label or not np.array_equal(entry.inputs, inputs, equal_nan=True):
            # Another machine or another version rounds differently: from here on the run finds its own way.
            del self.recorded.entries[self._cursor :]
            return None
        self._cursor += 1
        return entry.outputs

    def note(self, label: str, inputs: np.ndarray, outputs: np.ndarray) -> None:
        """Write down a new question with its answer."""
        if not self.active or self.full:
            return
        self._size += inputs.nbytes + outputs.nbytes
        if self._size > LARGEST:
            self.full = True
            return
        self.recorded.entries.append(Entry(label, inputs, outputs, self._elapsed()))
        self._cursor = len(self.recorded.entries)
        self._changed = True
        self._save_when_due()

    # --- compiled loops -----------------------------------------------------------------------------------------
    def keep(self, name: str, tree: Any, log: HistoryState) -> None:
        """Keep the state of a loop instead of the one before."""
        if self.active and not self.full:
            self.recorded.kept[name] = Kept(jax.tree.leaves(tree), log)
            self._changed = True
            self._save_when_due()

    def kept(self, name: str, like: Any) -> tuple[Any, HistoryState] | None:
        """The state of a loop as it was kept, in the structure of ``like``; None where there is none."""
        if name not in self.recorded.kept:
            return None
        leaves, log = self.recorded.kept[name]
        return restored(leaves, like, f"the state of {name!r}"), log

    def warm(self, owner: str, like: Any) -> Any | None:
        """The warm starts of an owner as they were kept."""
        leaves = self.recorded.warm.get(owner)
        return None if leaves is None else restored(leaves, like, "the warm starts")

    # --- saving -------------------------------------------------------------------------------------------------
    def _elapsed(self) -> float:
        return self.earlier + time.perf_counter() - self._begun

    def _save_when_due(self) -> None:
        if time.perf_counter() - self._saved >= self._pause:
            self._save_now()

    def _save_now(self) -> None:
        assert self._save is not None
        begun = time.perf_counter()
        if not self.full:  # the warm starts must be those after the last entry
            current = {name: owner.warm_leaves() for name, owner in self._owners.items()}
            self.recorded.warm.update({name: leaves for name, leaves in current.items() if leaves is not None})
        self.recorded.seconds = self._elapsed()
        try:
            self._save(self.recorded)
            self.trouble, self._changed = "", False
        except OSError as error:
            reason = error.strerror or str(error)
            if not self.trouble:
                warn_caller(f"the checkpoint cannot be written: {reason}; the run goes on", RuntimeWarning)
            self.trouble = reason
        self._saved = time.perf_counter()
        self._pause = max(self._interval, (self._saved - begun) / _SHARE)

    def stopped(self) -> None:
        """The run ends early: it is saved even where nothing is written down yet, so that it can be continued."""
        self._changed = True

    def close(self) -> None:
        """Save what is not saved yet, and write down nothing more."""
        if self.active and (self._changed or self.trouble):
            self._save_now()
        self._save = None

    def remark(self) -> str:
        """What the user has to know about the checkpoint, as a sentence; empty where all is well."""
        if self.trouble:
            return f" The checkpoint could not be written at the end ({self.trouble}); an older one may be in place."
        if self.full:
            return f" The checkpoint is full ({LARGEST >> 20} MB): a resumed run repeats what came later."
        return ""


def restored(leaves: list[np.ndarray], like: Any, what: str) -> Any:
    """Leaves as a tree of JAX arrays with the structure of ``like``; misfits are named."""
    expected, structure = jax.tree.flatten(like)
    found = [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in leaves]
    if found != [(np.shape(leaf), np.asarray(leaf).dtype) for leaf in expected]:
        raise CheckpointError(f"the checkpoint does not fit this version of blocc: {what} has another form")
    return jax.tree.unflatten(structure, [jnp.asarray(leaf) for leaf in leaves])
