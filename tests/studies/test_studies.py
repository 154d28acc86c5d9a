"""Studies as plain data: what is refused, how cells are ordered, grouped and named, and rows as text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import study_functions
from blocc.errors import OptionError
from blocc.studies import study as study_module
from blocc.studies.compute import decode, encode
from blocc.studies.study import Cell, Study, StudyError, computed, resolve, select


def make(**changes: Any) -> Study:
    return Study(**{"name": "one", "function": "study_functions:noise", **changes})


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"name": ""}, "name must be"),
        ({"name": "Two Words"}, "name must be"),
        ({"function": "noise"}, "package.module:name"),
        ({"function": ":noise"}, "package.module:name"),
        ({"grid": {"a": []}}, "at least one value"),
        ({"grid": {"a": "abc"}}, "list of at least one"),
        ({"grid": {"a": 3}}, "list of at least one"),
        ({"seeds": ()}, "seeds must be"),
        ({"seeds": (0, -1)}, "seeds must be"),
        ({"seeds": (True,)}, "seeds must be"),
        ({"grid": {"a": [1]}, "fixed": {"a": 2}}, "share names"),
        ({"grid": {"seed": [1]}}, "share names"),
        ({"fixed": {"status": 2}}, "other than 'status'"),
        ({"grid": {"error": [1]}}, "other than 'status'"),
        ({"fixed": {3: 2}}, "names other"),
        ({"together": ("b",)}, "together must name"),
        ({"fixed": {"a": {1, 2}}}, "JSON"),
        ({"grid": {"a": [float("nan")]}}, "JSON"),
        ({"grid": {"a": [1, 1]}}, "twice"),
        ({"seeds": (1, 1)}, "twice"),
    ],
)
def test_mistakes_are_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(OptionError, match=complaint):
        make(**changes)


def test_cells_run_through_the_grid_with_seeds_fastest() -> None:
    study = make(grid={"a": [1, 2], "b": ["x", "y"]}, seeds=range(2), fixed={"c": 0.5})
    points = [(cell.parameters["a"], cell.parameters["b"], cell.parameters["seed"]) for cell in study.cells()]
    assert points == [(a, b, seed) for a in (1, 2) for b in "xy" for seed in (0, 1)]
    assert all(cell.parameters["c"] == 0.5 for cell in study.cells())
    assert study.batches() == [(cell,) for cell in study.cells()]


def test_batches_differ_in_the_named_parameters_only() -> None:
    study = make(grid={"a": [1, 2], "b": [3, 4]}, seeds=range(3), together=("seed", "b"))
    batches = study.batches()
    assert [{cell.parameters["a"] for cell in batch} for batch in batches] == [{1}, {2}]
    assert [len(batch) for batch in batches] == [6, 6]


def test_keys_stay_the_same_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_module, "__version__", "1.2.3")
    cell = Cell("package.module:name", {"gamma": 0.1, "sizes": [1, 2], "seed": 0, "name": "naïve"})
    assert cell.key == "0006d97765425150ba7257b1277be985ce42d9147d4a118a60ce9cb73e2f928f"
    assert cell.key == cell.key_for("1.2.3")


def test_keys_depend_on_function_parameters_and_version() -> None:
    cells = [
        Cell("m:f", {"a": 1, "b": 2}),
        Cell("m:g", {"a": 1, "b": 2}),
        Cell("m:f", {"a": 1.0, "b": 2}),
        Cell("m:f", {"a": 1, "b": 2, "c": None}),
        Cell("m:f", {"a": math.nextafter(1.0, 2.0), "b": 2}),
    ]
    assert len({cell.key for cell in cells}) == len(cells)
    assert Cell("m:f", {"b": 2, "a": 1}).key == cells[0].key
    assert cells[0].key_for("0") != cells[0].key_for("1")


def test_a_study_survives_as_text() -> None:
    study = make(grid={"z": (1, 2.5), "a": range(2)}, seeds=range(2), fixed={"t": (1, 2)}, together=("a",))
    again = Study.from_json(study.to_json())
    assert [cell.key for cell in again.cells()] == [cell.key for cell in study.cells()]
    assert list(again.grid) == ["z", "a"]
    assert again.to_json() == study.to_json()
    with pytest.raises(StudyError, match="not the definition"):
        Study.from_json('{"nonsense": 1}')


def test_functions_that_cannot_be_found() -> None:
    assert resolve("study_functions:noise") is study_functions.noise
    for name in ("study_functions:missing", "no_such_module:f"):
        with pytest.raises(OptionError, match="cannot be imported"):
            resolve(name)


def test_rows_are_selected_and_stripped_of_measurements() -> None:
    rows = [{"a": 1, "value": 2, "seconds": 3.0}, {"a": 2, "value": 2, "seconds": 4.0}]
    assert list(select(rows, a=2)) == [rows[1]]
    assert computed(make(), rows[0]) == {"a": 1, "value": 2}


def test_together_must_return_a_row_for_each_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_functions, "together", lambda cells: [{}])
    study = make(function="study_functions:together", seeds=range(2), together=("seed",))
    with pytest.raises(OptionError, match="1 rows for 2 cells"):
        study.compute(study.batches()[0])


# --- rows as text -----------------------------------------------------------------------------------------------------
def test_rows_as_text_keep_every_bit() -> None:
    generator = np.random.default_rng(0)
    doubles = generator.integers(0, 2**63, 2000, dtype=np.int64).view(np.float64)
    doubles = doubles[~np.isnan(doubles)]
    again = np.array(decode(encode({"values": doubles}))["values"])
    assert again.tobytes() == doubles.tobytes()


def test_unusual_values_survive_as_text() -> None:
    row = study_functions.odd_values(0)
    again = decode(encode(row))
    assert math.isnan(again.pop("nan"))
    assert math.copysign(1.0, again["zero"]) == -1.0
    expected = {**row, "nested": {"$float": "nan", "$": [1, 2]}, "array": [[0.0, 1.0], [2.0, 3.0]]}
    del expected["nan"]
    assert again == expected
    assert again["nested"] == {"$float": "nan", "$": [1, 2]}
    assert (type(again["flag"]), type(again["whole"]), type(again["third"])) == (bool, int, float)
    assert again["single"] == float(np.float32(0.1))


def test_what_has_no_place_in_a_row() -> None:
    for value in ({1}, 1j, np.array([1j]), object(), b"bytes", np.datetime64("2020-01-01")):
        with pytest.raises(TypeError, match="a row must hold"):
            encode({"value": value})
    with pytest.raises(TypeError, match="keys must be strings"):
        encode({"value": {1: 2}})
