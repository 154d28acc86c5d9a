"""``blocc verify``, and the checkpoint options of ``blocc solve``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blocc._lib.digests import digest
from blocc.cli.commands import build_app

TEXT = """
from blocc import BilevelProblem, Box, Reals
problem = BilevelProblem(
    upper=lambda x, y: (x - 1.0) ** 2 + y**2,
    lower=lambda x, y: (y - x) ** 2,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
)
"""


def run(*arguments: object) -> tuple[int, str]:
    result = CliRunner().invoke(build_app(), [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A problem file and its saved result."""
    folder = tmp_path_factory.mktemp("verify")
    (folder / "study.py").write_text(TEXT)
    code, output = run("solve", folder / "study.py", "--save", folder / "kept", "--checkpoint", folder / "run.npz")
    assert code == 0, output
    return folder


def test_verified(folder: Path) -> None:
    code, output = run("verify", folder / "kept.json", folder / "study.py")
    assert code == 0, output
    assert "verified (tolerance 1e-05)" in output
    assert "stationarity of x" in output
    assert "FAILS" not in output


def test_json_and_quiet(folder: Path) -> None:
    code, output = run("verify", folder / "kept", f"{folder / 'study.py'}:problem", "--json")
    assert code == 0
    document = json.loads(output)
    assert document["ok"]
    assert all(check["ok"] for check in document["checks"])
    assert run("verify", folder / "kept", folder / "study.py", "--quiet") == (0, "")


def test_forged(folder: Path) -> None:
    document = json.loads((folder / "kept.json").read_text())
    document["result"]["upper_value"] = 0.0
    (folder / "forged.json").write_text(json.dumps(document))
    code, output = run("verify", folder / "forged", folder / "study.py")
    assert code == 6
    assert "was changed after it was saved" in output
    code, output = run("verify", folder / "forged", folder / "study.py", "--json")
    assert code == 6
    assert not json.loads(output)["ok"]
    (folder / "forged.json").write_text(json.dumps({**document, "sha256": digest(document)}))
    code, output = run("verify", folder / "forged", folder / "study.py")
    assert code == 6
    assert "NOT verified" in output
    assert "FAILS" in output


def test_resume(folder: Path) -> None:
    code, output = run("solve", folder / "study.py", "--resume", folder / "run.npz", "--json")
    assert code == 0
    assert json.loads(output)["status"] == "converged"
    assert run("solve", folder / "study.py", "--resume", folder / "none.npz")[0] == 2
    code, _ = run("solve", folder / "study.py", "--checkpoint", folder / "study.py")
    assert code == 2
    assert (folder / "study.py").read_text() == TEXT
