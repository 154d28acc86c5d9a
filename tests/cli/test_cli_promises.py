"""What every command keeps to: a sentence for a mistake, strict JSON, silence where it is asked for, no vain work."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from typer.testing import Result

pytest.importorskip("cvxpy")
pytest.importorskip("matpowercaseframes")
pytest.importorskip("numba")
pytest.importorskip("sklearn")

from command_line import blocc, strict

from blocc._lib.files import json_bytes
from blocc.roads.files import network_document
from blocc.svm.estimator import BilevelSVC
from blocc.transport import DesignOptions, FillRules, read_network, write_network
from power_reference import written
from road_designs import small_roads

PROBLEM = """
from blocc import BilevelProblem, Box, Reals
problem = BilevelProblem(
    upper=lambda x, y: (x - 1.0) ** 2 + y**2,
    lower=lambda x, y: (y - x) ** 2,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
)
"""
STUDY = 'name = "small"\nproblem = "toy"\nseeds = 1\n[options]\ntolerance = 1e-3\n[grid]\ngamma = [5.0]\n'
COUNTS = "link_id,count\nb>c,1.0\n1,5.0\n"


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A small input of every kind, by its name."""
    folder = tmp_path_factory.mktemp("inputs")
    random = np.random.default_rng(1)
    labels = np.where(np.arange(40) % 2 == 0, 1, -1)
    points = random.standard_normal((40, 2)) + 0.8 * labels[:, None]
    texts = {
        "problem.py": PROBLEM,
        "study.toml": STUDY,
        "counts.csv": COUNTS,
        "wrong.csv": "link_id,cost\n2,0.3\nb>c,x\n",
        "links.csv": "link_id,cost,exponent\n2,0.3,2\nb>c,0.5,2\n",
        "two.libsvm": "\n".join(f"{a} 1:{x:.4f} 2:{y:.4f}" for a, (x, y) in zip(labels, points, strict=True)),
        "one.csv": "width,class\n" + "".join(f"{x:.4f},same\n" for x in points[:, 0]),
        "few.csv": "1,a\n2,b\n",
        "three.csv": "\n".join(f"{k},{'abc'[k % 3]}" for k in range(12)) + "\n",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    (folder / "roads.json").write_bytes(json_bytes(network_document(small_roads())))
    write_network(read_network("three"), folder / "three.json")
    found = {path.stem if path.suffix != ".csv" else path.name: path for path in folder.iterdir()}
    return {**found, "ring": written(folder), "file": folder / "study.toml", "none": folder / "none"}


#: What fills in the figures that a file of a network leaves out.
RULES = [one.name for one in fields(FillRules)]


def call(inputs: dict[str, Path], line: str, *more: object) -> Result:
    """A command by its line; {NAME} stands for an input."""
    for name, path in inputs.items():
        line = line.replace(f"{{{name}}}", str(path))
    return blocc(*line.replace("{{", "{").replace("}}", "}").split(), *more)


#: Of every command that computes an answer, a line that takes little time.
COMPUTING = {
    "solve": "solve {problem}",
    "design": "design {three} --starts 1 --gamma 4",
    "svm": "svm {two}",
    "compare": "compare {problem} --methods gam",
    "assign": "roads assign {roads}",
    "expand": "roads expand {roads} --candidates {links.csv} --starts 1",
    "estimate": "roads estimate {roads} --counts {counts.csv} --prior-weight 0.1 --starts 1",
    "bid": "power bid {ring} --generators 2 --offer-cap 70 --starts 1",
}


@pytest.mark.parametrize("name", COMPUTING)
def test_json_is_strict_and_the_only_output(inputs: dict[str, Path], name: str) -> None:
    done = call(inputs, COMPUTING[name], "--json")
    assert done.exit_code == 0, done.output
    assert isinstance(strict(done.stdout), dict)


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPUTING)
def test_quiet_is_silent_and_files_are_named(inputs: dict[str, Path], name: str, tmp_path: Path) -> None:
    out = () if name == "solve" else ("--out", tmp_path / "deep" / "made")
    done = call(inputs, COMPUTING[name], "--quiet", *out)
    assert (done.exit_code, done.output) == (0, "")
    loud = call(inputs, COMPUTING[name], *out)
    made = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {f"written: {path}" for path in made} <= set(loud.output.splitlines())
    assert bool(made) == bool(out)


@pytest.mark.parametrize(
    "line", [*(COMPUTING[name] for name in COMPUTING if name != "solve"), "sweep {study}", "bench"]
)
@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_a_folder_that_is_a_file_is_refused(inputs: dict[str, Path], line: str, below: str) -> None:
    done = call(inputs, line, "--out", f"{inputs['file']}{below}")
    assert done.exit_code == 2
    assert "--out must be a folder" in done.stderr
    assert inputs["file"].read_text() == STUDY


#: Of a classifier: what a command is told by other words, and what needs more than a word.
NOT_HERE = ("random_state", "engine", "class_weight", "n_components", "validation_fraction")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("design", [one.name for one in fields(DesignOptions)]),
        ("svm", [name for name in BilevelSVC().get_params(deep=False) if name not in NOT_HERE]),
        *(
            (f"network {command}", [one.name for one in fields(FillRules)])
            for command in ("describe", "validate", "convert")
        ),
    ],
)
def test_every_option_in_python_is_one_here(line: str, names: list[str]) -> None:
    shown = blocc(*line.split(), "--help").output
    assert [name for name in names if f"--{name.replace('_', '-')}" not in shown] == []


MISTAKES = {
    "solve {problem} --x0 {{": "--x0 must be JSON such as",
    "solve {problem} --x0 [1,2]": "x0 must be a single number, got",
    "solve {problem} --x0 5": "x0 lies outside x_set",
    "solve {problem} --x0 1 --starts 3": "either --x0",
    "solve {problem} --starts 0": "starts must be a positive integer",
    "solve {problem} --gamma big": "--gamma must be 'auto' or a positive number",
    "solve {problem} --gamma -1": "gamma must be positive",
    "solve {problem} --inner simplex": "inner must be 'auto'",
    "solve {problem} --preset fast": "preset must be one of",
    "solve {problem} --tolerance 0": "tolerance must be positive",
    "solve {problem} --step long": "--step",
    "solve {problem} --speed 9": "--speed",
    "solve {none}.py": "there is no file",
    "solve {study}": "must end in .py",
    "toy --preset fast": "preset must be",
    "toy --gamma -1": "gamma must be",
    "fly": "fly",
    "design three --gamma big": "--gamma",
    "design three --gamma -1": "--gamma must be",
    "design three --starts 0": "--starts must be",
    "design three --starts many": "--starts",
    "design three --seed -1": "--seed must be",
    "design three --budget -1": "--budget must be",
    "design three --budget nan": "--budget must be",
    "design three --max-capacity much": "--max-capacity",
    "design three --max-capacity true": "--max-capacity",
    "design three --min-capacity much": "--min-capacity must be a number or a JSON list",
    "design three --existing-capacity {{}}": "--existing-capacity must be a number or a JSON list",
    "design three --max-capacity -1": "--max-capacity must",
    "design three --max-capacity [1,2]": "--max-capacity must",
    'design three --max-capacity [1,"x",1,1,1,1]': "--max-capacity must",
    "design three --method magic": "--method must be",
    "design three --engine steam": "--engine must be",
    "design three --preset x": "--preset must be",
    "design three --time-limit -1": "--time-limit must be",
    "design three --max-iterations 0": "--max-iterations must be",
    "design three --symmetric --method pgd": "use --method 'prices'",
    "design three --matrix AM": "give --demand-omx too",
    "design sevile": "did you mean 'seville'?",
    "design paris": "three, nine, seville",
    "design three --scenario max_capcity=1": "'max_capcity=1' changes 'max_capcity'",
    "design three --scenario min_capacity=1,budget=0": "scenario 'min_capacity=1,budget=0': budget must be at least",
    "design three --workers 0": "must be a whole number",
    "design three --scenario base --executor clowns": "executor must be one of",
    "design three --scenario base --checkpoint x.npz": "--checkpoint and --resume are for one design",
    "design three --scenarios nowhere.toml": "there is no file nowhere.toml",
    "svm {two} --kernel cosine": "--kernel must be linear, rbf or poly, got 'cosine'",
    "svm {two} --kernel-gamma wide": "--kernel-gamma must be 'scale', 'auto' or a positive number",
    "svm {two} --kernel rbf --kernel-gamma -1": "--kernel-gamma must be positive",
    "svm {two} --kernel-gamma 1": "--kernel-gamma has no effect with --kernel linear",
    "svm {two} --kernel rbf --degree 2": "--degree has no effect with --kernel rbf; it is for poly",
    "svm {two} --kernel poly --degree 0": "--degree must be positive",
    "svm {two} --kernel poly --coef0 inf": "--coef0 must be a finite number",
    "svm {two} --c-penalty max": "--c-penalty must be sum, squared or norm",
    "svm {two} --c-weight nan": "--c-weight must be positive",
    "svm {two} --intercept-weight -1": "--intercept-weight must be nonnegative",
    "svm {two} --gamma big": "--gamma must be 'auto' or a positive number",
    "svm {two} --gamma -3": "--gamma must be positive",
    "svm {two} --tolerance 0": "--tolerance must be positive",
    "svm {two} --start middle": "--start must be auto or uniform",
    "svm {two} --method magic": "--method must be exact or pgd",
    "svm {two} --step 0.1": "--step has no effect with --method exact",
    "svm {two} --method pgd --step -1": "--step must be positive",
    "svm {two} --method pgd --max-iterations 0": "--max-iterations must be positive",
    "svm {two} --time-limit -1": "--time-limit must be positive",
    "svm {two} --preset best": "--preset must be default, paper or svm",
    "svm {two} --preset paper --c-weight 2": "--c-weight is set by --preset paper",
    "svm {two} --seed -1": "--seed must be nonnegative",
    "svm {two} --seed many": "--seed",
    "svm {two} --splits 0": "--splits must be positive",
    "svm {two} --top -1": "--top must be nonnegative",
    "svm {two} --train 0": "--train must lie between 1 and 38 of the 40 samples",
    "svm {two} --validation 39": "--validation must lie between 1 and 38",
    "svm {two} --train 30 --validation 10": "leave no test samples; their sum must be below 40",
    "svm {two} --train 1": "choose a larger --train or another --seed",
    "svm {two} --label kind": "--label is for CSV files",
    "svm {one.csv}": "one class only: every label is 'same'",
    "svm {one.csv} --label colour": "colour",
    "svm {one.csv} --label 7": "--label = '7' is not a column",
    "svm {few.csv}": "few has 2 samples",
    "svm {none}.csv": "there is no file",
    "svm breast_cancer --label y": "--label cannot be chosen",
    "compare four": "there is no problem 'four'; give toy, three, svm:DATA, gam-svm:DATA or the path of a Python file",
    "compare absent.py": "there is no file 'absent.py'",
    "compare svm:": "svm: needs samples",
    "compare svm:absent.csv": "absent.csv",
    "compare svm:{three.csv}": "must have two classes of samples, got 3",
    "compare toy --methods newton": "--methods must be names among blocc, lv-hba",
    "compare toy --methods ,": "--methods must be names among",
    "compare toy --preset best": "--preset must be default or paper, got 'best'",
    "compare toy --time-limit inf": "--time-limit must be positive and finite",
    "compare toy --max-iterations 0": "--max-iterations must be positive",
    "compare toy --seed -1": "--seed must be nonnegative",
    "compare toy --x0 [1,2]": "x0 must be a single number",
    "compare toy --x0 7": "x0 lies outside x_set",
    "bench --problems nowhere --out {none}": "'nowhere' is not in the collection",
    "bench --problems , --out {none}": "--problems must be names such as toy,three",
    "bench --problems toy --full --out {none}": "--problems and --full exclude each other",
    "bench --methods newton --out {none}": "--methods must be names among blocc, lv-hba",
    "bench --time-limit 0 --out {none}": "--time-limit must be positive and finite",
    "bench --preset best --out {none}": "--preset must be default or paper, got 'best'",
    "bench --executor threads --out {none}": "--executor must be one of",
    "sweep none.toml": "there is no file 'none.toml'",
    "sweep {study} --executor magic": "--executor must be one of serial, processes, dask",
    "sweep {study} --executor processes --workers 0": "workers",
    "report none": "there is no run in 'none'",
    "report {study}": "study.toml",
    "roads expand {roads} --candidates 1,99": "no link 99",
    "roads expand {roads} --cost -1": "--cost must be",
    "roads expand {roads} --cost much": "--cost must be a number or a JSON list",
    "roads expand {roads} --candidates {links.csv} --cost 2": "has a column cost: leave out --cost",
    "roads expand {roads} --candidates {wrong.csv}": "wrong.csv line 3: cost 'x' is not a finite number",
    "roads expand {roads} --starts 0": "--starts must be",
    "roads expand {roads} --time-factor 0": "--time-factor must be a positive number",
    "roads expand {roads} --default-bpr 0.15": "--default-bpr must be two numbers",
    "roads expand {roads} --resume {links.csv}": "is not a blocc checkpoint",
    "roads assign {roads} --limit-factor 0": "--limit-factor must be a positive number",
    "power bid {ring} --generators 2,x": "--generators must be numbers such as 3,5",
    "power bid {ring} --generators 2 --offer-cap 1": "--offer-cap must not be below the producer's own cost",
    "power bid {ring} --generators 9": "generators: three has no 9 in service",
    "power expand {ring} --cost a": "--cost must be a number or a JSON list",
    "power tariff {ring} --zones [1]": "--zones must be JSON such as",
    "power tariff {ring} --demand-factor 0": "--demand-factor must be a positive number",
    "power tariff {ring} --branch-model ac": "--branch-model must be 'pglib' or 'matpower'",
    "power validate no_such.m": "there is no file no_such.m",
    "verify {none} {problem}": "none",
    "verify {study} {none}.py": "none.py",
    "examples copy nothing": "there are: ",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_mistakes_are_named_in_a_sentence(
    inputs: dict[str, Path], line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In the words of the command line, before any work, and without a file."""
    monkeypatch.chdir(tmp_path)
    done = call(inputs, line)
    assert done.exit_code == 2, done.output
    assert MISTAKES[line] in " ".join(done.stderr.split())
    assert "Traceback" not in done.output
    assert list(tmp_path.iterdir()) == []
    assert not inputs["none"].exists()
