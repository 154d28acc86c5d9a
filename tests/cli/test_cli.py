"""The command line: exit codes, one clear sentence for bad input, and output that scripts can read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from command_line import blocc

from blocc._lib.version import __version__
from blocc.cli import commands as cli
from blocc.cli.common import BAD_INPUT, EXIT_CODES
from blocc.errors import InputError
from blocc.problem import BilevelProblem
from blocc.problems.loading import load_problem, parse_x0
from blocc.report.storage import load_result
from blocc.result import Status

EXAMPLES = Path(__file__).parents[2] / "examples"
HEADER = "import jax.numpy as jnp\nfrom blocc import BilevelProblem, Box, Product, Reals\n"


def write(folder: Path, text: str, name: str = "study.py") -> Path:
    path = folder / name
    path.write_text(HEADER + text)
    return path


def problem_text(variable: str = "problem", **changes: str) -> str:
    parts = {
        "upper": "lambda x, y: (x - 1) ** 2 + (y - 1) ** 2",
        "lower": "lambda x, y: (y - x) ** 2",
        "x_set": "Box(0, 3)",
        "y_set": "Reals()",
        **changes,
    }
    return f"{variable} = BilevelProblem({', '.join(f'{key}={value}' for key, value in parts.items())})\n"


# --- exit codes ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("code", "changes", "options"),
    [
        (0, {}, []),
        (3, {"upper": "lambda x, y: (x - 1) ** 4 + jnp.cos(y)"}, ["--max-iterations", "1"]),
        pytest.param(4, {"inequality": "lambda x, y: jnp.stack([y - x, x + 1 - y])"}, [], marks=pytest.mark.slow),
        pytest.param(5, {"lower": "lambda x, y: -y"}, [], marks=pytest.mark.slow),
        pytest.param(6, {"lower": "lambda x, y: x * y - y ** 2", "y_set": "Box(-1, 1)"}, [], marks=pytest.mark.slow),
        (7, {"upper": "lambda x, y: jnp.log(-1 - x ** 2) + y ** 2"}, []),
        (8, {}, ["--time-limit", "1e-3"]),
    ],
)
def test_exit_codes(tmp_path: Path, code: int, changes: dict[str, str], options: list[str]) -> None:
    outcome = blocc("solve", write(tmp_path, problem_text(**changes)), *options)
    assert outcome.exit_code == code, outcome.output
    status = next(line for line in outcome.output.splitlines() if ": " in line).split(": ")[1]
    assert EXIT_CODES[Status(status)] == code


def test_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    honest = cli.solve
    monkeypatch.setattr(
        cli, "solve", lambda *arguments, **options: replace(honest(*arguments, **options), status=Status.INTERRUPTED)
    )
    assert blocc("solve", write(tmp_path, problem_text())).exit_code == 130


def test_every_status_has_a_code() -> None:
    assert set(EXIT_CODES) == set(Status)
    documented = blocc("--help").output
    for code in {*EXIT_CODES.values(), BAD_INPUT}:
        assert re.search(rf"^ +{code}  \w", documented, re.MULTILINE)


# --- bad input -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "suffix", "options", "message"),
    [
        ("", "", [], "holds no BilevelProblem"),
        ("x = = 3\n", "", [], r"line 3: invalid syntax"),
        ("import nowhere_to_be_found\n", "", [], "fails while it is read: ModuleNotFoundError"),
        ("raise SystemExit(0)\n", "", [], "fails while it is read: SystemExit"),
        (problem_text(lower="lambda x, y: x[3]"), "", [], r"lower\(x, y\) fails"),
        (
            problem_text("one") + problem_text("two"),
            "",
            [],
            r"several problems \(one, two\); choose one: .*study.py:one",
        ),
        (problem_text(), ":other", [], "defines no 'other'; the problems in it: problem"),
        ("number = 3\n", ":number", [], "must be a BilevelProblem or build one, got int"),
        ("def build():\n    raise KeyError('no')\n", "", [], r"build\(\) in .* fails: KeyError: 'no'"),
        ("def build():\n    return 3\n", "", [], "must be a BilevelProblem or build one, got int"),
        (problem_text(), "", ["--x0", '"a"'], "x0 must be a number or a list of numbers"),
    ],
)
def test_bad_input(tmp_path: Path, text: str, suffix: str, options: list[str], message: str) -> None:
    outcome = blocc("solve", f"{write(tmp_path, text)}{suffix}", *options)
    assert outcome.exit_code == BAD_INPUT
    assert re.search(message, outcome.stderr), outcome.stderr
    assert "Traceback" not in outcome.output
    assert len(outcome.stderr.strip().splitlines()) == 1


# --- finding the problem, and x0 ------------------------------------------------------------------------------------
def test_problem_by_name_and_by_function(tmp_path: Path) -> None:
    text = problem_text("one", name="'first'") + problem_text("two", name="'second'")
    path = write(tmp_path, text)
    assert load_problem(f"{path}:two").name == "second"
    body = problem_text("made", name="'built'").strip()
    path = write(tmp_path, f"def main():\n    raise SystemExit\ndef build(size=3):\n    {body}\n    return made\n")
    assert load_problem(str(path)).name == "built"
    path = write(
        tmp_path, f"def spoil():\n    raise OSError\ndef build() -> BilevelProblem:\n    {body}\n    return made\n"
    )
    assert load_problem(str(path)).name == "built"


def test_two_names_for_one_problem(tmp_path: Path) -> None:
    path = write(tmp_path, problem_text("first", name="'same'") + "second = first\n")
    assert load_problem(str(path)).name == "same"


def test_files_import_their_neighbours(tmp_path: Path) -> None:
    write(tmp_path, problem_text("shared", name="'next door'"), "neighbour_of_study.py")
    path = write(tmp_path, "import neighbour_of_study\nproblem = neighbour_of_study.shared\n")
    assert load_problem(str(path)).name == "next door"


def test_x0_of_any_structure(tmp_path: Path) -> None:
    body = "lambda x, y: jnp.sum(x['a']) + jnp.sum(x['b'][0]) + x['b'][1] + y"
    x_set = "Product({'a': Box(0, 1, shape=2), 'b': (Box(0, 1, shape=(2, 2)), Box(0, 1))})"
    problem = load_problem(str(write(tmp_path, problem_text(upper=body, lower=body, x_set=x_set))))
    x = parse_x0('{"b": [[[1, 0], [0, 1]], 0.5], "a": [0, 1]}', problem)
    np.testing.assert_array_equal(problem.x_set.ravel(x), [0, 1, 1, 0, 0, 1, 0.5])
    for text, message in [
        ("3", "x0 must be an object with the keys a, b"),
        ('{"a": [0, 1]}', "x0 must be an object with the keys a, b"),
        ('{"a": [0, 1], "b": [1]}', r"x0\.b must be a list of 2 parts"),
        ('{"a": 1, "b": [[[1, 0], [0, 1]], 0.5]}', r"x0\.a must be an array of shape \(2,\), got 1"),
    ]:
        with pytest.raises(InputError, match=message):
            parse_x0(text, problem)


# --- what comes out ------------------------------------------------------------------------------------------------
def test_json_save_and_plot(tmp_path: Path) -> None:
    saved, drawn = tmp_path / "kept", tmp_path / "picture.png"
    outcome = blocc(
        "solve", EXAMPLES / "toy.py", "--x0", "0.3", "--gamma", "5", "--json", "--save", saved, "--plot", drawn
    )
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert document["status"] == "converged"
    assert document["exit_code"] == 0
    assert document["x"] == pytest.approx(0.148891, abs=1e-4)
    assert document["certificate"]["feasibility"] <= 1e-8
    assert float(load_result(saved).x) == document["x"]
    assert drawn.stat().st_size > 10_000


def test_many_starts(tmp_path: Path) -> None:
    outcome = blocc("solve", write(tmp_path, problem_text()), "--starts", "5", "--seed", "3", "--json")
    document = json.loads(outcome.stdout)
    assert len(document["starts"]) == 5
    assert document["upper_value"] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.slow
def test_pricing_example() -> None:
    start = '{"price": [1, 1, 1], "capacity": 3}'
    outcome = blocc("solve", EXAMPLES / "pricing.py", "--x0", start, "--json")
    assert outcome.exit_code == 0, outcome.output
    document = json.loads(outcome.stdout)
    assert sum(document["y"]["bought"]) + document["y"]["generated"] == pytest.approx(8.0, abs=1e-6)
    assert max(document["y"]["bought"]) <= document["x"]["capacity"] + 1e-6
    assert document["upper_value"] == pytest.approx(-5.8125, abs=1e-3)


def test_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path, problem_text())
    asked = []

    class Report(SimpleNamespace):
        def __str__(self) -> str:
            return "lower level: convex"

        def to_dict(self) -> dict[str, object]:
            return {"ok": self.ok, "curvature": np.float64(2.0)}

    for ok, code in ((True, 0), (False, 6)):
        monkeypatch.setattr(BilevelProblem, "check", lambda self, x=None, ok=ok: asked.append(x) or Report(ok=ok))
        outcome = blocc("check", path, "--x0", "2")
        assert (outcome.exit_code, outcome.stdout) == (code, "lower level: convex\n")
        assert json.loads(blocc("check", path, "--json").stdout) == {"ok": ok, "curvature": 2.0}
    assert float(asked[0]) == 2.0
    assert asked[1] is None


@pytest.mark.slow
def test_check_for_real() -> None:
    pytest.importorskip("blocc.judge.check")
    outcome = blocc("check", EXAMPLES / "toy.py")
    assert outcome.exit_code == 0, outcome.output
    assert outcome.stdout.strip()


def test_toy(tmp_path: Path) -> None:
    outcome = blocc("toy", "--starts", "12", "--preset", "paper", "--out", tmp_path / "toy")
    assert outcome.exit_code == 0, outcome.output
    assert "0.986225" in outcome.stdout
    assert "12 of 12 starts ended within 0.001 of a local minimiser" in outcome.stdout
    assert (tmp_path / "toy" / "surface.png").stat().st_size > 50_000


# --- as a program ---------------------------------------------------------------------------------------------------
def test_help_and_version() -> None:
    for command in ([], ["solve"], ["check"], ["toy"]):
        assert "Usage" in blocc(*command, "--help").output
    assert blocc("--version").stdout == f"blocc {__version__}\n"
    assert "pgd" in blocc("solve", "--help").output
    assert "examples/" not in blocc("--help").output  # an installed package has no such folder


def test_the_first_examples_of_the_help_run_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line.strip(" │").removeprefix("blocc ") for line in blocc("--help").output.splitlines()]
    first = lines.index("examples copy toy")
    for line in lines[first : first + 2]:
        assert blocc(*line.split()).exit_code == 0


def test_as_a_process(tmp_path: Path) -> None:
    program = [sys.executable, "-m", "blocc.cli.main"]
    version = subprocess.run([*program, "--version"], capture_output=True, text=True, check=True)
    assert version.stdout == f"blocc {__version__}\n"
    failed = subprocess.run([*program, "solve", str(tmp_path / "gone.py")], capture_output=True, text=True, check=False)
    assert failed.returncode == BAD_INPUT
    assert failed.stderr.startswith("blocc: there is no file")


def without(missing: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """The command line where a package is not installed."""
    code = f"import sys; sys.modules['{missing}'] = None; from blocc.cli.main import main; main()"
    program = [sys.executable, "-c", code, *words]
    return subprocess.run(program, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.parametrize("missing", ["typer", "rich"])
def test_without_typer_or_rich_a_command_says_what_it_needs(missing: str, tmp_path: Path) -> None:
    outcome = without(missing, "solve", "toy.py", folder=tmp_path)
    assert outcome.returncode == BAD_INPUT
    assert outcome.stderr.startswith(f"the command line needs {missing}: pip install 'blocc[cli]'")
    assert len(outcome.stderr.splitlines()) == 1


def test_without_typer_and_rich_there_are_version_info_and_examples(tmp_path: Path) -> None:
    assert without("typer", "--version", folder=tmp_path).stdout == f"blocc {__version__}\n"
    told = without("typer", "info", "--json", folder=tmp_path)
    assert json.loads(told.stdout)["versions"]["blocc"] == __version__, told.stderr
    assert without("rich", "examples", "list", folder=tmp_path).stdout == blocc("examples", "list").stdout
    assert without("typer", "examples", "copy", "toy", folder=tmp_path).stdout == "written: toy.py\n"
    again = without("typer", "examples", "copy", "toy", folder=tmp_path)
    assert again.returncode == BAD_INPUT
    assert again.stderr.startswith("blocc: toy.py is there already")
    assert "pip install 'blocc[cli]'" in without("typer", folder=tmp_path).stdout
