"""A clock that tests turn: what a time limit ends, it ends at the same place on every machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from blocc._lib import compiled


@dataclass
class Clock:
    """Seconds that pass only where the program looks at the clock, and where a test says so."""

    step: float  #: seconds from one look to the next
    at: Mapping[int, Callable[[], object]] = field(default_factory=dict)  #: what happens at a look of that number
    looks: int = 0
    passed: float = 0.0

    def __call__(self) -> float:
        self.looks += 1
        self.advance(self.step)
        self.at.get(self.looks, lambda: None)()
        return self.passed

    def advance(self, seconds: float) -> None:
        """Work that takes that long."""
        self.passed += seconds


@contextmanager
def counted(step: float, at: Mapping[int, Callable[[], object]] | None = None) -> Iterator[Clock]:
    """In this block, :func:`time.perf_counter` and the clock of time limits are such a clock."""
    clock = Clock(step, at or {})
    with patch.object(time, "perf_counter", clock), patch.object(compiled, "now", clock):
        yield clock
