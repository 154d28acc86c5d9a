"""``python -m reproduction``: what is printed and written, going on, missing data, exit codes. Most items are fakes."""

from __future__ import annotations

import csv
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

import blocc
from blocc.cli import commands as cli
from blocc.kit.figure import new_figure
from blocc.report.study.study_views import Findings, Observation, Table
from blocc.studies.study import Row, Study
from reproduction import command, data_sets, item, items
from reproduction.item import Item

COMPUTED: list[tuple[float, int]] = []
BROKEN: set[float] = set()


def compute(gamma: float, seed: int) -> dict:
    if gamma in BROKEN:
        raise ValueError("broken")
    COMPUTED.append((gamma, seed))
    return {"value": gamma + seed, "folder": os.environ["BLOCC_DATA"], "seconds": 0.01}


def studies_of(name: str) -> object:
    def studies(quick: bool) -> list[Study]:
        grid = {"gamma": [1.0, 2.0] if quick else [1.0, 2.0, 3.0]}
        return [Study(name=name, function="test_command:compute", grid=grid, seeds=[0, 1])]

    return studies


def conclude(rows: Mapping[str, Sequence[Row]]) -> Findings:
    (found,) = rows.values()
    done = [row for row in found if row["status"] == "done"]
    table = Table(
        "Values [bold]as is[/bold]", [{"gamma": row["gamma"], "value": row["value"]} for row in done], ["note"]
    )
    return Findings(
        [table], [Observation("Values grow", True, "1 to 3", "the paper, Table 9"), Observation("They shrink", False)]
    )


def make_item(name: str, **given: object) -> Item:
    values: dict = {"studies": studies_of(name), "conclude": conclude, "seconds": (60.0, 7200.0), **given}
    return Item(name=name, title=f"The {name}", **values)


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    COMPUTED.clear()
    BROKEN.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BLOCC_DATA", str(tmp_path / "data"))
    yield
    COMPUTED.clear()
    BROKEN.clear()


def use(monkeypatch: pytest.MonkeyPatch, *items: Item, unavailable: Mapping[str, str] = MappingProxyType({})) -> None:
    monkeypatch.setattr(command, "load_items", lambda: ({item.name: item for item in items}, unavailable))


class Outcome(NamedTuple):
    exit_code: int
    stdout: str
    stderr: str


@pytest.fixture
def reproduce(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*arguments: object) -> Outcome:
        exit_code = command.main([str(argument) for argument in arguments])
        return Outcome(exit_code, *capsys.readouterr())

    return run


Reproduce = Callable[..., Outcome]


def test_everything(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"), make_item("second"))
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 0, outcome
    text = outcome.stdout
    assert "first, second at reduced size: 8 cells; expected time 2:00 on two cores" in text
    assert "holds: Values grow [the paper, Table 9] (1 to 3)" in text
    assert "does not hold: They shrink" in text
    assert text.count("Reduced size (--quick)") == 2
    assert "Reduced size (--quick)" in Path("run/first.md").read_text()
    latex = Path("run/first.tex").read_text()
    assert r"\toprule" in latex
    assert "gamma & value" in latex
    assert "Values [bold]as is[/bold]" in text
    assert "complete: 8 cells, 8 done" in text
    assert max(map(len, text.splitlines())) <= 100
    names = {path.name for path in Path("run").iterdir()}
    assert {"first.csv", "first.md", "first-rows-first.csv", "second.csv", "index.html", "study.sqlite"} <= names
    rows = list(csv.DictReader(Path("run/first-rows-first.csv").read_text().splitlines()))
    assert {row["folder"] for row in rows} == {os.environ["BLOCC_DATA"]}
    page = Path("run/index.html").read_text()
    assert "Values grow" in page
    assert "The second" in page


def test_one_item_goes_on_at_full_size(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"), make_item("second"))
    assert reproduce("first", "--quick", "--out", "run").exit_code == 0
    assert len(COMPUTED) == 4
    outcome = reproduce("first", "--out", "run")
    assert "Reduced size" not in outcome.stdout
    assert "first at full size: 6 cells, 4 of them done before; expected time 40:00" in outcome.stdout
    assert len(COMPUTED) == 6
    reproduce("first", "--out", "run", "--fresh", "--quiet")
    assert len(COMPUTED) == 12
    assert not Path("run/second.csv").exists()


def test_pictures(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    def draw(rows: Mapping[str, Sequence[Row]]) -> dict:
        assert len(rows["first"]) == 4
        return {"way": new_figure(3.0, 2.0)}

    use(monkeypatch, make_item("first", draw=draw))
    assert reproduce("--quick", "--out", "run", "--quiet").exit_code == 0
    assert Path("run/first-way.png").read_bytes().startswith(b"\x89PNG")
    assert Path("run/first-way.pdf").read_bytes().startswith(b"%PDF")
    assert "data:image/png" in Path("run/index.html").read_text()
    use(monkeypatch, make_item("first", draw=lambda rows: 1 / 0))
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 0
    assert "The pictures could not be drawn (ZeroDivisionError" in outcome.stdout


def test_missing_data_is_said(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce, tmp_path: Path) -> None:
    use(monkeypatch, make_item("first"), make_item("samples", needs=("cats", "dogs")))
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 0
    wanted = f"skipped: samples: there is no data set cats; put LIBSVM's file at {tmp_path / 'data' / 'cats.libsvm'}"
    assert wanted in outcome.stdout
    assert len(COMPUTED) == 4
    assert "Skipped" in Path("run/index.html").read_text()
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "cats.libsvm").touch()  # one of two is enough
    outcome = reproduce("--quick", "--out", "run", "--data", there)
    assert "left out of samples: there is no data set dogs" in outcome.stdout
    assert len(COMPUTED) == 8


def test_one_rule_says_where_data_are(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data_sets, "CLONE", tmp_path)
    monkeypatch.setattr(data_sets, "read_samples", lambda name: f"{name} from OpenML")
    monkeypatch.delenv("BLOCC_DATA")
    assert data_sets.load_data("diabetes") == "diabetes from OpenML"
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "diabetes.libsvm").write_text("-1 1:0.5\n1 1:-1\n")
    assert data_sets.load_data("diabetes").n_samples == 2
    monkeypatch.setenv("BLOCC_DATA", str(tmp_path))
    assert data_sets.data_file("diabetes") is None
    assert "name another folder in $BLOCC_DATA" in data_sets.why_missing("fourclass")


def test_failed_cells(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"))
    BROKEN.add(2.0)
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 3
    assert "some cells failed: 4 cells, 2 done, 2 failed" in outcome.stdout
    BROKEN.clear()
    assert reproduce("--quick", "--out", "run").exit_code == 0
    assert len(COMPUTED) == 4


def test_an_item_that_cannot_conclude(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    def fails(rows: Mapping[str, Sequence[Row]]) -> Findings:
        raise KeyError("value")

    use(monkeypatch, make_item("first", conclude=fails), make_item("second"))
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 3
    assert "its rows do not make its tables (KeyError: 'value')" in outcome.stdout
    assert Path("run/second.csv").exists()


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    class Interrupting(set):
        def __contains__(self, gamma: object) -> bool:
            if gamma == 2.0:
                raise KeyboardInterrupt
            return False

    use(monkeypatch, make_item("first"), make_item("second"))
    monkeypatch.setattr(sys.modules[__name__], "BROKEN", Interrupting())
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 130
    assert "2 of 4 cells of first are done and kept" in outcome.stderr
    assert "skipped: none of its cells was computed yet" in outcome.stdout
    assert Path("run/first.csv").exists()


def test_report_again(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"))
    reproduce("--quick", "--out", "run", "--quiet")
    Path("run/index.html").unlink()
    outcome = reproduce("--report", "--out", "run")
    assert outcome.exit_code == 0
    assert "holds: Values grow [the paper, Table 9] (1 to 3)" in outcome.stdout
    assert "Values grow" in Path("run/index.html").read_text()
    assert len(COMPUTED) == 4
    outcome = reproduce("--report", "--out", "nowhere")
    assert outcome.exit_code == 2
    assert "there is no run in 'nowhere'" in outcome.stderr


def test_the_package_shows_the_studies_alone(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"))
    reproduce("--quick", "--out", "run", "--quiet")
    shown = CliRunner().invoke(cli.build_app(), ["report", "run"])
    assert shown.exit_code == 0, shown.output
    assert "complete: 4 cells, 4 done" in shown.stdout
    page = Path("run/index.html").read_text()
    assert "<h1>Experiments of the paper</h1>" in page
    assert "Values grow" not in page


def test_list_and_unknown(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"), make_item("samples", needs=("diabetes",)))
    outcome = reproduce("--list")
    assert outcome.exit_code == 0
    assert [line.split()[:4] for line in outcome.stdout.splitlines() if "samples" in line] == [
        ["samples", "1:00", "2:00:00", "diabetes"]
    ]
    assert not COMPUTED
    outcome = reproduce("third")
    assert outcome.exit_code == 2
    assert "there is no item 'third'; the items are first, samples" in outcome.stderr
    outcome = reproduce("--data", "nowhere")
    assert outcome.exit_code == 2
    assert "--data must be a folder" in outcome.stderr


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch, reproduce: Reproduce) -> None:
    use(monkeypatch, make_item("first"), unavailable={"other": "it needs scikit-learn, which is not installed"})
    outcome = reproduce("--quick", "--out", "run")
    assert outcome.exit_code == 0
    assert "skipped: other: it needs scikit-learn, which is not installed" in outcome.stdout
    assert "not available: other" in reproduce("--list").stdout
    outcome = reproduce("other")
    assert outcome.exit_code == 2
    assert "'other' is not available: it needs scikit-learn" in outcome.stderr


@pytest.mark.parametrize("wrapped", [False, True])
def test_an_item_without_its_package_is_unavailable(monkeypatch: pytest.MonkeyPatch, wrapped: bool) -> None:
    missing = ModuleNotFoundError("No module named 'sklearn'", name="sklearn.svm")
    error: ImportError = missing
    if wrapped:
        error = ImportError("install it")
        error.__cause__ = missing
    fail_to_import(monkeypatch, error)
    found, unavailable = items.load_items()
    assert list(found) == [name for name in items.NAMES if name != "svm"]
    assert unavailable == {"svm": "it needs scikit-learn, which is not installed"}


@pytest.mark.parametrize(
    "error",
    [
        ImportError("cannot import name 'gone' from 'blocc.solve'", name="blocc.solve"),
        ModuleNotFoundError("No module named 'blocc.gone'", name="blocc.gone"),
    ],
)
def test_every_other_error_of_an_import_is_raised(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    fail_to_import(monkeypatch, error)
    with pytest.raises(ImportError, match="gone"):
        items.load_items()
    with pytest.raises(ImportError, match="gone"):
        raise_when_drawn(error)


def fail_to_import(monkeypatch: pytest.MonkeyPatch, error: ImportError) -> None:
    """The item of support vector machines cannot be imported."""
    import_module = importlib.import_module

    def fails(name: str) -> object:
        if name == "reproduction.svm":
            raise error
        return import_module(name)

    monkeypatch.setattr(items.importlib, "import_module", fails)


def raise_when_drawn(error: ImportError) -> None:
    def draw(rows: Mapping[str, Sequence[Row]]) -> dict:
        raise error

    item._pictures(make_item("first", draw=draw), {})


def test_every_item_of_the_paper_is_there() -> None:
    found, unavailable = items.load_items()
    assert unavailable == {}
    assert list(found) == [one.name for one in found.values()] == list(items.NAMES)
    names = [study.name for one in found.values() if not one.needs for study in one.studies(True)]
    assert len(names) == len(set(names))  # they share one store


@pytest.mark.slow
def test_the_command_with_worker_processes(tmp_path: Path) -> None:
    """Workers import the functions of the items, from wherever the program was started."""
    words = ["gradient_of_v", "--quick", "--executor", "processes", "--workers", "1", "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-m", "reproduction", *words],
        cwd=Path(command.__file__).parents[1],
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert done.returncode == 0, done.stderr
    assert "holds: The gradient without the multiplier points the opposite way" in done.stdout
    assert "complete: 8 cells, 8 done, 0 failed" in done.stdout


def test_the_package_does_not_import_the_reproduction() -> None:
    source = Path(blocc.__file__).parent
    assert [
        path for path in source.rglob("*.py") if re.search(r"^\s*(from|import) reproduction", path.read_text(), re.M)
    ] == []
