"""One batch of a study, computed here and now: what every executor does, in this process or far away.

Nothing a study's function does may stop the others: whatever it raises becomes the text of a failed outcome. Rows
travel as text, so that they are the same whoever computed them: JSON that keeps every bit of a float, because Python
writes the shortest decimal that reads back as the same double, and keeps the sign of zero. JSON has no NaN. A number
that is not finite becomes ``{"$float": "nan"}``, and a key that begins with a dollar gets another one in front, so
that no value can be mistaken for this.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from blocc._lib.version import __version__
from blocc.executors.work import Call, Outcome, explain, worker_name
from blocc.studies.study import RESERVED, Cell, Row, Study, StudyError, resolve

_MARK = "$float"  #: of a number that JSON cannot hold


@dataclass(frozen=True)
class Batches:
    """The batches of a study as work for an executor; the value of an outcome holds encoded rows, one for each cell."""

    study: Study

    @property
    def name(self) -> str:
        """That of the study."""
        return self.study.name

    def check(self) -> Call:
        """Workers must find the study's function."""
        return resolve, self.study.function

    def call(self, index: int) -> Call:
        """One batch, by its place in ``study.batches()``."""
        return compute_batch, self.study.to_json(), index, __version__


@lru_cache(maxsize=4)
def _parsed(definition: str) -> tuple[Study, list[tuple[Cell, ...]]]:
    study = Study.from_json(definition)
    return study, study.batches()


def compute_batch(definition: str, index: int, version: str) -> Outcome:
    """The rows of one batch, or the reason why there are none.

    :param definition: the study, by :meth:`Study.to_json`
    :param version: of the package that asks. Another one might compute something else, and is refused.
    """
    if version != __version__:
        raise StudyError(f"the study was started by blocc {version}, but {worker_name()} has blocc {__version__}")
    study, batches = _parsed(definition)
    started = time.perf_counter()
    rows: tuple[str, ...] = ()
    failure: str | None = None
    try:
        batch = batches[index]
        rows = tuple(_checked(cell, row) for cell, row in zip(batch, study.compute(batch), strict=True))
    except KeyboardInterrupt:  # the user stops the study; the function has not failed
        raise
    except BaseException as error:  # SystemExit, too: a function must not end its worker
        failure = explain(error)
    return Outcome(index, rows, failure, time.perf_counter() - started, worker_name())


def _checked(cell: Cell, row: Row) -> str:
    text = encode(row)
    columns = decode(text)
    for name in RESERVED:
        if name in columns:
            raise ValueError(f"a row must not have a column {name!r}: the engine adds it")
    for name in columns.keys() & cell.parameters.keys():
        if columns[name] != cell.parameters[name]:
            raise ValueError(f"a row must not have a column {name!r} that differs from the parameter of that name")
    return text


# --- rows as text ----------------------------------------------------------------------------------------------------
def _marked(value: Any) -> Any:
    """A value with NumPy's and JAX's numbers and arrays replaced by Python's, and what JSON cannot hold marked."""
    if hasattr(value, "dtype") and hasattr(value, "shape") and np.asarray(value).dtype.kind in "biufU":
        value = np.asarray(value).tolist()  # a number where the array has no axes
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {_MARK: repr(value)}
    if value is None or isinstance(value, bool | str | int):
        return value
    if isinstance(value, Mapping):
        unfit = [key for key in value if not isinstance(key, str)]
        if unfit:
            raise TypeError(f"keys must be strings, got {unfit[0]!r}")
        return {f"${key}" if key.startswith("$") else key: _marked(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_marked(item) for item in value]
    raise TypeError(f"a row must hold numbers, texts, lists and dictionaries of these, got {type(value).__name__}")


def _unmarked(value: dict[str, Any]) -> Any:
    if value.keys() == {_MARK}:
        return float(value[_MARK])
    return {key[1:] if key.startswith("$") else key: item for key, item in value.items()}


def encode(row: Mapping[str, Any]) -> str:
    """A row as text.

    :raises TypeError: where it holds anything that has no place in JSON
    """
    return json.dumps(_marked(row), allow_nan=False)


def decode(text: str) -> dict[str, Any]:
    """The row that :func:`encode` wrote."""
    row: dict[str, Any] = json.loads(text, object_hook=_unmarked)
    return row
