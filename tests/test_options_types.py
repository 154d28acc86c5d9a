"""Options by name are known to type checkers and to ``help``."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from blocc import Options, solve, solve_many
from blocc.options import OptionNumbers

SCRIPT = """\
from blocc import solve, solve_differentiable, solve_many
from blocc.problems.toy import toy_problem

solve(toy_problem(), tolerance=1e-6)
solve(toy_problem(), tolerence=1e-6)
solve_many(toy_problem(), starts=3, time_limits=3.0)
solve(toy_problem(), method="lv-hba", alpha=0.1)
solve_differentiable(toy_problem(), None, tolerence=1e-6)
"""


def test_the_names_are_those_of_options() -> None:
    assert set(OptionNumbers.__annotations__) == {field.name for field in fields(Options)}


def test_help_lists_every_option() -> None:
    assert solve.__doc__ is not None
    assert "solve" in (solve_many.__doc__ or "")
    for field in fields(Options):
        assert f"``{field.name}``" in solve.__doc__


def test_a_misspelt_option_is_a_type_error(tmp_path: Path) -> None:
    api = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT, encoding="utf-8")
    cache = Path(__file__).parents[1] / ".mypy_cache"
    output, _, code = api.run([str(script), "--cache-dir", str(cache), "--follow-imports=silent"])
    assert code == 1
    assert [line for line in (4, 5, 6, 7, 8) if f"script.py:{line}: error" in output] == [5, 6, 8]
