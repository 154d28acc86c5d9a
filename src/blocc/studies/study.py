"""What a study is: a function, a grid of parameters and seeds. Each combination is a cell; each cell becomes a row.

A study is plain data. Its function is named, not held, so that any process or machine with the package finds it; its
parameters are what JSON can hold, so that the key of a cell never changes.
"""

from __future__ import annotations

import hashlib
import importlib
import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blocc._lib.files import shown
from blocc._lib.version import __version__
from blocc.errors import BloccError, OptionError

#: Parameters of a cell, its seed among them; and what a function returns for it. Both hold JSON's values only.
Parameters = Mapping[str, Any]
Row = Mapping[str, Any]

SEED = "seed"
#: A study may have so many cells; a definition of a few bytes could promise any number of them.
MOST_CELLS = 100_000
#: Columns that the engine adds to every row, so that neither parameters nor functions may use these names.
RESERVED = ("status", "error")


class StudyError(BloccError):
    """A study cannot be run or read: its store, its workers or its cluster refuse. What is stored stays stored."""


@dataclass(frozen=True)
class Study:
    """All cells of ``grid`` x ``seeds``, and how to compute them.

    :param name: heads tables and files; lower-case letters, digits and hyphens
    :param function: ``"package.module:name"``. Called as ``function(**parameters)`` with the cell's parameters, its
        ``seed`` and the ``fixed`` ones, it returns a row. Where ``together`` is not empty, it is called once for many
        cells, ``function([parameters, ...])``, and returns their rows in order: the way to compute them by one vmap.
    :param grid: values of each parameter; the product of all is studied, the last one running fastest
    :param seeds: repetitions of each combination
    :param fixed: parameters that are the same for all cells
    :param together: names of parameters (``"seed"`` among them) that may differ within one call of ``function``
    :param measured: columns of a row that are measured, not computed: they differ from one run to the next
    """

    name: str
    function: str
    grid: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    seeds: Sequence[int] = (0,)
    fixed: Parameters = field(default_factory=dict)
    together: Sequence[str] = ()
    measured: Sequence[str] = ("seconds",)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.function, str):
            raise OptionError(f"name and function must be texts, got {shown(self.name)} and {shown(self.function)}")
        allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-")
        if not self.name or not set(self.name) <= allowed:
            raise OptionError(f"name must be lower-case letters, digits and hyphens, got {self.name!r}")
        module, _, name = self.function.partition(":")
        if not module or not name:
            raise OptionError(f"function must be named as 'package.module:name', got {self.function!r}")
        for key, values in self.grid.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not len(values):
                raise OptionError(f"grid[{key!r}] must be a list of at least one value, got {values!r}")
        if not len(self.seeds) or any(isinstance(s, bool) or not isinstance(s, int) or s < 0 for s in self.seeds):
            raise OptionError(f"seeds must be nonnegative whole numbers, at least one, got {self.seeds!r}")
        count = math.prod(map(len, self.grid.values())) * len(self.seeds)
        if count > MOST_CELLS:
            raise OptionError(f"grid and seeds make {count:,} cells; {MOST_CELLS:,} are the limit")
        names = [*self.grid, SEED, *self.fixed]
        twice = sorted({key for key in names if names.count(key) > 1})
        if twice:
            raise OptionError(f"grid, fixed and the seed must not share names, got {', '.join(map(repr, twice))} twice")
        unfit = [key for key in names if not isinstance(key, str) or key in RESERVED]
        if unfit:
            raise OptionError(f"parameters must have names other than 'status' and 'error', got {unfit[0]!r}")
        unknown = [key for key in self.together if key not in (*self.grid, SEED)]
        if unknown:
            raise OptionError(f"together must name parameters of the grid or 'seed', got {unknown[0]!r}")
        try:
            canonical(self._content())
        except (TypeError, ValueError) as error:
            raise OptionError(f"grid and fixed must hold what JSON can hold: {error}") from error
        keys = [cell.key for cell in self.cells()]
        if len(set(keys)) != len(keys):
            raise OptionError("grid and seeds must not hold a value twice: two cells are the same")

    def _content(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "function": self.function,
            "grid": {key: list(values) for key, values in self.grid.items()},
            "seeds": list(self.seeds),
            "fixed": dict(self.fixed),
            "together": list(self.together),
            "measured": list(self.measured),
        }

    def to_json(self) -> str:
        """The study as text, from which :meth:`from_json` makes the same study with the same cells."""
        return json.dumps(self._content(), allow_nan=False)  # keys unsorted: their order is that of the cells

    @classmethod
    def from_json(cls, text: str) -> Study:
        """The study that :meth:`to_json` wrote."""
        try:
            return cls(**json.loads(text))
        except (TypeError, ValueError, AttributeError, RecursionError) as error:
            raise StudyError(f"this is not the definition of a study: {error!s:.500}") from error

    def cells(self) -> list[Cell]:
        """All cells, in the order of the grid, seeds running fastest."""
        found = []
        for values in itertools.product(*self.grid.values()):
            point = dict(zip(self.grid, values, strict=True))
            found += [Cell(self.function, {**point, SEED: seed, **self.fixed}) for seed in self.seeds]
        return found

    def batches(self) -> list[tuple[Cell, ...]]:
        """The cells, grouped into what one call of the function computes; independent of who computes them."""
        if not self.together:
            return [(cell,) for cell in self.cells()]
        groups: dict[str, list[Cell]] = {}
        for cell in self.cells():
            alike = {key: value for key, value in cell.parameters.items() if key not in self.together}
            groups.setdefault(canonical(alike), []).append(cell)
        return [tuple(group) for group in groups.values()]

    def compute(self, batch: Sequence[Cell]) -> list[Row]:
        """The rows of one batch, computed here and now."""
        function = resolve(self.function)
        if not self.together:
            return [dict(function(**cell.parameters)) for cell in batch]
        rows: list[Row] = [dict(row) for row in function([dict(cell.parameters) for cell in batch])]
        if len(rows) != len(batch):
            raise OptionError(f"{self.function} returned {len(rows)} rows for {len(batch)} cells")
        return rows


@dataclass(frozen=True)
class Cell:
    """One combination of parameters, seed included."""

    function: str
    parameters: Parameters

    @property
    def key(self) -> str:
        """The same for the same function, parameters and version of the package; different for any other."""
        return self.key_for(__version__)

    def key_for(self, version: str) -> str:
        """The key that this cell had, or will have, in another version of the package."""
        content = {"function": self.function, "parameters": dict(self.parameters), "version": version}
        return hashlib.sha256(canonical(content).encode()).hexdigest()


def canonical(value: Any) -> str:
    """JSON with sorted keys; NaN and infinities are refused."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def resolve(function: str) -> Callable[..., Any]:
    """The function behind ``package.module:name``."""
    module, _, name = function.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise OptionError(f"function {function!r} cannot be imported: {error}") from error


def computed(study: Study, row: Row) -> dict[str, Any]:
    """A row without its measured columns: what must be equal however it was computed."""
    return {key: value for key, value in row.items() if key not in study.measured}


def select(rows: Sequence[Row], **wanted: Any) -> Iterator[Row]:
    """The rows whose parameters or columns have these values."""
    return (row for row in rows if all(row.get(key) == value for key, value in wanted.items()))
