"""Problem files: what they may import, and what they leave behind."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from blocc.errors import InputError
from blocc.problems.loading import load_problem

NEIGHBOUR = """
from blocc import BilevelProblem, Reals

def tracking(weight=1.0, name="beside"):
    return BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + weight * y**2, lower=lambda x, y: (y - x) ** 2,
        x_set=Reals(), y_set=Reals(), name=name,
    )
"""
FILE = """
def build(weight: float = 1.0):
    from neighbour_of_loading import tracking

    return tracking(weight, name="weight " + str(weight))
"""


def test_builders_import_their_neighbours_and_leave_no_path_behind(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_loading.py").write_text(NEIGHBOUR)
    file = tmp_path / "file.py"
    file.write_text(FILE)
    before = list(sys.path)
    assert load_problem(f"{file}:build").name == "weight 1.0"
    assert load_problem(f"{file}:build", {"weight": 2.0}).name == "weight 2.0"
    file.write_text("import neighbour_of_loading\n1 / 0\n")
    with pytest.raises(InputError, match="ZeroDivisionError"):
        load_problem(str(file))
    assert sys.path == before


def test_arguments_need_a_function_that_takes_them(tmp_path: Path) -> None:
    file = tmp_path / "file.py"
    file.write_text("number = 1\ndef build(weight):\n    return weight\n")
    for argument, arguments, message in (
        (f"{file}", {"weight": 1}, "need the function"),
        (f"{file}:number", {"weight": 1}, "has no function 'number'"),
        (f"{file}:build", {"weight": 1}, "must be a BilevelProblem or build one, got int"),
        (f"{file}:build", {"other": 1}, "unexpected keyword argument"),
    ):
        with pytest.raises(InputError, match=message):
            load_problem(argument, arguments)
