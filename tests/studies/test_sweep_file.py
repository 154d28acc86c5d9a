"""Sweeps from TOML files: what is planned, what a cell returns, and what is refused before any work."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from blocc.errors import BloccError
from blocc.options import Options
from blocc.result import Status
from blocc.studies import sweep, sweep_cells
from blocc.studies.sweep import read_sweep
from blocc.studies.sweep_targets import find_target
from blocc.transport.design.options import DesignOptions
from blocc.transport.network.files import read_network, write_network

PROBLEM = """
from blocc import BilevelProblem, Box, Reals


def held(weight: float = 1.0, size: int = 0) -> BilevelProblem:
    return BilevelProblem(
        upper=lambda x, y: (x - weight) ** 2 + y**2,
        lower=lambda x, y: (y - 2.0 * x) ** 2,
        inequality=lambda x, y: y - x,
        x_set=Box(0.0, 3.0),
        y_set=Reals(),
    )


number = 3
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "held.py").write_text(PROBLEM)
    return tmp_path


def plan(folder: Path, text: str, name: str = "My study.toml") -> sweep.Sweep:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_sweep(file)


def rows_of(planned: sweep.Sweep) -> list[dict]:
    return [dict(row) for batch in planned.study.batches() for row in planned.study.compute(batch)]


# --- plans ---------------------------------------------------------------------------------------------------------
def test_a_plan(folder: Path) -> None:
    found = plan(
        folder,
        """
        problem = "held.py:held"
        seeds = 3
        [options]
        tolerance = 1e-4
        [grid]
        gamma = [5, "auto"]
        [arguments]
        size = 2
        [grid.arguments]
        weight = [1.0, 2.0]
        [output]
        columns = ["upper_value", "x"]
        folder = "here"
        """,
    )
    study = found.study
    assert study.name == "my-study"
    assert study.grid == {"gamma": [5, "auto"], "arguments.weight": [1.0, 2.0]}
    assert study.seeds == [0, 1, 2]
    assert study.fixed["problem"] == f"{folder / 'held.py'}:held"
    assert study.fixed["arguments.size"] == 2
    assert study.fixed["start"] == "random"
    assert len(study.fixed["sha256"]) == 64
    assert found.columns == ("upper_value", "x")
    assert found.folder == folder / "here"
    assert len(study.cells()) == 12


def test_a_changed_file_gives_new_cells(folder: Path) -> None:
    text = 'problem = "held.py"\nx0 = 1.0'
    before = plan(folder, text).study
    (folder / "held.py").write_text(PROBLEM + "\n# another\n")
    after = plan(folder, text).study
    assert {cell.key for cell in before.cells()}.isdisjoint(cell.key for cell in after.cells())
    sweep_cells.cached_problem.cache_clear()
    with pytest.raises(BloccError, match="has changed since the study was planned"):
        rows_of(sweep.Sweep(before, (), None))


def test_middle_is_the_start_without_seeds(folder: Path) -> None:
    assert plan(folder, 'problem = "toy"').study.fixed["start"] == "middle"
    assert plan(folder, 'problem = "toy"\nseeds = [7]\nstart = "middle"').study.fixed["start"] == "middle"


# --- cells ---------------------------------------------------------------------------------------------------------
def test_cells_of_a_problem(folder: Path) -> None:
    found = plan(
        folder,
        """
        problem = "held.py:held"
        seeds = 2
        [grid.arguments]
        weight = [1.0, 2.0]
        """,
    )
    rows = rows_of(found)
    assert [row["x"][0] for row in rows] == pytest.approx([0.5, 0.5, 1.0, 1.0], abs=1e-3)
    assert set(rows[0]) == set(sweep_cells.SOLVE_COLUMNS)
    assert {row["outcome"] for row in rows} == {"converged"}


@pytest.mark.slow
def test_the_seed_draws_the_start(folder: Path) -> None:
    rows = rows_of(plan(folder, 'problem = "toy"\nseeds = [0, 1, 2, 3]\n[options]\ntolerance = 1e-4'))
    assert len({round(row["x"][0], 3) for row in rows}) > 1
    again = rows_of(plan(folder, 'problem = "toy"\nseeds = [0, 1, 2, 3]\n[options]\ntolerance = 1e-4'))
    assert [row["x"] for row in rows] == [row["x"] for row in again]


@pytest.mark.slow
def test_other_methods(folder: Path) -> None:
    rows = rows_of(plan(folder, 'problem = "toy"\nx0 = 1.4\n[grid]\nmethod = ["blocc", "gam"]'))
    assert rows[0]["upper_value"] == pytest.approx(rows[1]["upper_value"], abs=1e-3)


def test_cells_of_a_network(folder: Path) -> None:
    write_network(read_network("three"), folder / "net.json")
    found = plan(folder, 'problem = "network:net.json"\n[options]\nstarts = 1\n[grid]\ngamma = [100.0, "auto"]')
    same = plan(folder, 'problem = "three"', "three.toml")
    assert found.study.fixed["sha256"] == same.study.fixed["sha256"]
    rows = rows_of(found)
    assert set(rows[0]) == set(sweep_cells.DESIGN_COLUMNS)
    for row in rows:
        assert row["utility"] == pytest.approx(row["revenue"] - row["construction_cost"])
        assert 0 < row["links_built"] <= 6
        assert len(row["x"]) == read_network("three").n_links


@pytest.mark.slow
def test_rules_and_factors_of_a_network(folder: Path) -> None:
    """Twice the demand earns twice as much; and a rule fills in what the files leave out, in every cell."""
    document = json.loads(write_network(read_network("three"), folder / "net.json").read_text())
    document["links"] = [{name: row[name] for name in ("from", "to", "time")} for row in document["links"]]
    (folder / "net.json").write_text(json.dumps(document))
    options = "[options]\nstarts = 1\ncost_per_time = 1.0\n[grid]\ndemand_factor = [1.0, 2.0]"
    found = plan(folder, f'problem = "network:net.json"\n{options}')
    once, twice = rows_of(found)
    assert once["outcome"] == twice["outcome"] == "converged"
    assert twice["utility"] == pytest.approx(2 * once["utility"], rel=1e-3)
    with pytest.raises(BloccError, match="6 of 6 links have no cost"):
        plan(folder, 'problem = "network:net.json"\n[options]\nstarts = 1')


@pytest.mark.slow
def test_a_network_without_a_budget_builds_nothing(folder: Path) -> None:
    (row,) = rows_of(plan(folder, 'problem = "three"\n[options]\nstarts = 1\nbudget = 0'))
    assert (row["links_built"], row["construction_cost"]) == (0, 0.0)


def test_every_option_of_a_target_can_be_set_to_its_default(folder: Path) -> None:
    """A new option needs no line in the sweeps."""
    for problem, options in (("three", DesignOptions()), ("toy", Options())):
        target = find_target(problem, folder)
        for option in fields(options):
            value = getattr(options, option.name)
            if option.name in target.options and isinstance(value, str | bool | int | float):
                target.check({option.name: value}, {})
        assert set(target.options) >= {option.name for option in fields(options)} - {"seed"}


def test_cells_of_samples(folder: Path) -> None:
    generator = np.random.default_rng(1)
    labels = np.where(np.arange(60) % 2 == 0, 1, -1)
    features = generator.standard_normal((60, 2)) + 0.8 * labels[:, None]
    lines = [f"{label} 1:{a:.6f} 2:{b:.6f}" for label, (a, b) in zip(labels, features, strict=True)]
    (folder / "clouds.libsvm").write_text("\n".join(lines) + "\n")
    found = plan(folder, 'problem = "svm:clouds.libsvm"\nseeds = 2\n[grid]\nc_weight = [1.0, 10.0]')
    rows = rows_of(found)
    assert set(rows[0]) == set(sweep_cells.SVM_COLUMNS)
    assert all(0.5 < row["test_accuracy"] <= 1.0 for row in rows)
    with pytest.raises(BloccError, match="train = 50 and validation = 12 leave no test samples"):
        plan(folder, 'problem = "svm:clouds.libsvm"\n[options]\ntrain = 50')
    with pytest.raises(BloccError, match="c_weight"):
        plan(folder, 'problem = "svm:clouds.libsvm"\n[options]\nc_weight = -1')


@pytest.mark.slow
def test_an_interrupted_run_is_no_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """A solve answers Ctrl-C with its best point so far; the study must stop, not store that."""
    found = sweep_cells.solve(sweep_cells.cached_problem("toy", None), 1.4, progress=False)
    object.__setattr__(found, "status", Status.INTERRUPTED)
    monkeypatch.setattr(sweep_cells, "solve", lambda *_, **__: found)
    with pytest.raises(KeyboardInterrupt):
        sweep_cells.solve_cell(problem="toy", sha256=None, seed=0)


# --- what is refused -----------------------------------------------------------------------------------------------
TOY = 'problem = "toy"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"problem must be FILE.py, .* got nothing"),
        ("problem = 3", "problem must be FILE.py"),
        ('problem = "elsewhere"', "problem must be FILE.py.*got 'elsewhere'"),
        ('problem = "none.py"', "which does not exist; paths begin at the TOML file"),
        ('problem = "svm:"', "must name a file after svm:"),
        ('problem = "network:none.json"', "there is no network"),
        ('problem = "held.py:number"', "number in .* must be a BilevelProblem"),
        ('problem = "held.py:nothing"', "defines no 'nothing'"),
        (TOY + "sedes = 3", "unknown key sedes; did you mean seeds?"),
        (TOY + "[options]\ngama = 1", "unknown key options.gama; did you mean options.gamma?"),
        (TOY + "[options]\nseed = 1", "the seeds of a study are its key seeds"),
        (TOY + "[grid]\nbudget = [1]", "unknown key grid.budget"),
        (TOY + "grid = 3", r"grid must be a table, a line \[grid\]"),
        (TOY + "[grid]\ngamma = 3", "grid.gamma must be a list of at least one value"),
        (TOY + "[grid]\ngamma = []", "grid.gamma must be a list of at least one value"),
        (TOY + "[grid]\ngamma = [1.0, 1.0]", "grid.gamma holds 1.0 twice"),
        (TOY + "[grid]\ngamma = [1.0, -1.0]", r"gamma must be positive.*\(in the cells with gamma = -1.0\)"),
        (TOY + "[grid]\ngamma = [1.0, inf]", "grid.gamma must be finite"),
        (TOY + "[grid]\ngamma = [2020-01-01]", "grid.gamma must hold texts, numbers"),
        (TOY + "[options]\ngamma = 1\n[grid]\ngamma = [1]", "gamma stands in options and in grid"),
        (TOY + '[grid]\nmethod = ["gam", "none"]', "method must be one of .*'none'"),
        (TOY + '[options]\nmethod = "gam"\ngamma = 3', "gamma is an option of method 'blocc'"),
        (TOY + '[options]\npreset = "none"', "preset must be one of"),
        (TOY + "[options]\ninner = 3", "inner must be the name"),
        (TOY + "seeds = -1", "seeds must be how many, or a list"),
        (TOY + "seeds = [1, 1]", "seeds must be how many, or a list"),
        (TOY + "seeds = 1000000", "seeds must be how many, or a list"),
        (TOY + "seeds = 1000\n[grid]\ngamma = " + str([float(k) for k in range(1, 200)]), "make 199,000 cells"),
        (TOY + 'start = "best"', "start must be 'random'"),
        (TOY + 'start = "random"\nx0 = 1', "start and x0 exclude each other"),
        (TOY + "x0 = 17", "x0 lies outside x_set"),
        (TOY + "x0 = [1, 2]", "x0 must be a single number"),
        (TOY + "[arguments]\na = 1", "the toy takes none"),
        ('problem = "held.py"\n[arguments]\nweight = 1', "arguments need the function that takes them"),
        ('problem = "held.py:held"\n[arguments]\nheight = 1', "unexpected keyword argument 'height'"),
        (TOY + 'name = "A b"', "name must be lower-case letters"),
        (TOY + '[output]\ncolumns = ["upper"]', "output.columns names 'upper', which no row has; did you mean"),
        (TOY + "[output]\ncolumns = 3", "output.columns must be a list"),
        (TOY + "[output]\nfolder = 3", "output.folder must be the path"),
        (TOY + "[output]\npage = 3", "unknown key output.page"),
        ('problem = "three"\nx0 = 1', "x0 is for problem files and the toy"),
        ('problem = "three"\n[options]\nstarts = 0', "starts must be a whole number of at least 1"),
        ('problem = "three"\n[options]\nmethod = "pgd"\nbudget = 3.0', "knows no budget"),
        ('problem = "three"\n[options]\nbudget = -1.0', "budget must be"),
        ('problem = "three"\n[options]\nsymmetric = "yes"', "symmetric must be true or false"),
        ('problem = "three"\n[grid]\nmax_capacity = [-1.0]', "max_capacity must be .* >= 0"),
        ("problem = ", "is not a TOML file"),
    ],
)
def test_mistakes_are_named(folder: Path, text: str, message: str) -> None:
    with pytest.raises(BloccError, match=message) as caught:
        plan(folder, text)
    assert "My study.toml" in str(caught.value)


def test_files_that_are_none(folder: Path) -> None:
    with pytest.raises(BloccError, match="there is no file"):
        read_sweep(folder / "none.toml")
    with pytest.raises(BloccError, match="cannot read"):
        read_sweep(folder)
    (folder / "large.toml").write_bytes(b"#" * (sweep.MOST_BYTES + 1))
    with pytest.raises(BloccError, match="too large"):
        read_sweep(folder / "large.toml")
    (folder / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(BloccError, match="is not a TOML file"):
        read_sweep(folder / "bytes.toml")
