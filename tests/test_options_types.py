"""Options by name are known to type checkers and to ``help``."""

from __future__ import annotations

import tomllib
from dataclasses import fields
from pathlib import Path

import pytest

import typed_calls
from blocc import BloccError, Options, solve, solve_many
from blocc.options import OptionNumbers

ROOT = Path(__file__).parents[1]


def test_the_names_are_those_of_options() -> None:
    assert set(OptionNumbers.__annotations__) == {field.name for field in fields(Options)}


def test_help_lists_every_option() -> None:
    assert solve.__doc__ is not None
    assert "solve" in (solve_many.__doc__ or "")
    for field in fields(Options):
        assert f"``{field.name}``" in solve.__doc__


def test_a_misspelt_option_is_a_type_error() -> None:
    """``make lint`` checks the calls; here, that it is asked to, and that the calls are those of this package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]
    assert settings["strict"]
    assert "tests/typed_calls.py" in settings["files"]
    script = (ROOT / "tests" / "typed_calls.py").read_text(encoding="utf-8")
    ignored = [line for line in script.splitlines() if "# type: ignore[call-" in line]
    assert len(ignored) == 3
    for line in ignored:
        with pytest.raises(BloccError):
            eval(line.partition("#")[0].strip(), vars(typed_calls))
