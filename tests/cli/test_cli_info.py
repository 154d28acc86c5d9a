"""``blocc info`` and ``blocc examples``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import blocc
from blocc.cli.commands import build_app

ROOT = Path(__file__).parents[2]


def call(*words: object) -> tuple[int, str]:
    outcome = CliRunner().invoke(build_app(), [str(word) for word in words])
    return outcome.exit_code, outcome.output


def test_info_names_versions_devices_and_threads() -> None:
    code, text = call("info")
    assert code == 0
    for word in (f"blocc           {blocc.__version__}", "jax ", "numpy ", "device ", "threads "):
        assert word in text
    facts = json.loads(call("info", "--json")[1])
    assert facts["versions"]["blocc"] == blocc.__version__
    assert facts["threads"] >= 1
    assert facts["devices"]


def test_every_example_is_listed_with_a_sentence() -> None:
    code, text = call("examples", "list")
    assert code == 0
    for path in (*(ROOT / "examples").glob("*.py"), *(ROOT / "examples" / "gallery").glob("*.py")):
        assert path.stem in text


def test_a_copy_is_the_file_with_what_it_reads(tmp_path: Path) -> None:
    assert call("examples", "copy", "study", tmp_path)[0] == 0
    for name in ("study.toml", "toy.py"):
        assert (tmp_path / name).read_bytes() == (ROOT / "examples" / name).read_bytes()


@pytest.mark.parametrize(("name", "words"), [("nothing", "there are: "), ("toy", "is there already")])
def test_what_cannot_be_copied_is_named(tmp_path: Path, name: str, words: str) -> None:
    (tmp_path / "toy.py").write_text("mine")
    code, text = call("examples", "copy", name, tmp_path)
    assert code == 2
    assert words in text
    assert (tmp_path / "toy.py").read_text() == "mine"
