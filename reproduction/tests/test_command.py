"""``blocc reproduce``: items, what is printed and written, going on, missing data, and exit codes. Items are fakes."""

from __future__ import annotations

import csv
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner
from typer.testing import Result as Outcome

from blocc.cli import main as cli
from blocc.report.plots import new_figure
from blocc.studies.item import Findings, Item, Observation, Table
from blocc.studies.study import Row, Study

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
    return Findings([table], [Observation("Values grow", True, "1 to 3"), Observation("They shrink", False)])


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


def use(monkeypatch: pytest.MonkeyPatch, *items: Item) -> None:
    fake = SimpleNamespace(
        UNAVAILABLE={}, ITEMS={item.name: item for item in items}, MODULE_OF={item.name: item.name for item in items}
    )
    monkeypatch.setitem(sys.modules, "reproduction.items", fake)  # type: ignore[arg-type]


def blocc(*arguments: object) -> Outcome:
    return CliRunner().invoke(cli.build_app(), [str(argument) for argument in arguments])


def test_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"), make_item("second"))
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 0, outcome.output
    text = outcome.stdout
    assert "first, second at reduced size: 8 cells; expected time 2:00 on two cores" in text
    assert "holds: Values grow (1 to 3)" in text
    assert "does not hold: They shrink" in text
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


def test_one_item_goes_on_at_full_size(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"), make_item("second"))
    assert blocc("reproduce", "first", "--quick", "--out", "run").exit_code == 0
    assert len(COMPUTED) == 4
    outcome = blocc("reproduce", "first", "--out", "run")
    assert "first at full size: 6 cells, 4 of them done before; expected time 40:00" in outcome.stdout
    assert len(COMPUTED) == 6
    blocc("reproduce", "first", "--out", "run", "--fresh", "--quiet")
    assert len(COMPUTED) == 12
    assert not Path("run/second.csv").exists()


def test_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(rows: Mapping[str, Sequence[Row]], findings: Findings) -> dict:
        assert len(rows["first"]) == 4
        return {"way": new_figure(3.0, 2.0)}

    use(monkeypatch, make_item("first"))
    spec = SimpleNamespace(draw=draw, __spec__=SimpleNamespace())
    monkeypatch.setitem(sys.modules, "reproduction.pictures", SimpleNamespace(__spec__=1, __path__=[]))  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "reproduction.pictures.first", spec)  # type: ignore[arg-type]
    assert blocc("reproduce", "--quick", "--out", "run", "--quiet").exit_code == 0
    assert Path("run/first-way.png").read_bytes().startswith(b"\x89PNG")
    assert "data:image/png" in Path("run/index.html").read_text()
    spec.draw = lambda rows, findings: 1 / 0
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 0
    assert "The pictures could not be drawn (ZeroDivisionError" in outcome.stdout


def test_missing_data_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    use(monkeypatch, make_item("first"), make_item("samples", needs=("diabetes", "fourclass")))
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 0
    assert f"skipped: samples: there is no folder {tmp_path / 'data'} with the data set" in outcome.stdout
    assert len(COMPUTED) == 4
    there = tmp_path / "elsewhere"
    there.mkdir()
    (there / "diabetes.libsvm").touch()
    outcome = blocc("reproduce", "--quick", "--out", "run", "--data", there)
    assert "does not have the data set fourclass" in outcome.stdout
    assert "Skipped" in Path("run/index.html").read_text()
    (there / "fourclass").touch()
    assert blocc("reproduce", "--quick", "--out", "run", "--data", there).exit_code == 0
    assert len(COMPUTED) == 8


def test_failed_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"))
    BROKEN.add(2.0)
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 3
    assert "some cells failed: 4 cells, 2 done, 2 failed" in outcome.stdout
    BROKEN.clear()
    assert blocc("reproduce", "--quick", "--out", "run").exit_code == 0
    assert len(COMPUTED) == 4


def test_an_item_that_cannot_conclude(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(rows: Mapping[str, Sequence[Row]]) -> Findings:
        raise KeyError("value")

    use(monkeypatch, make_item("first", conclude=fails), make_item("second"))
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 3
    assert "its rows do not make its tables (KeyError: 'value')" in outcome.stdout
    assert Path("run/second.csv").exists()


def test_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    class Interrupting(set):
        def __contains__(self, gamma: object) -> bool:
            if gamma == 2.0:
                raise KeyboardInterrupt
            return False

    use(monkeypatch, make_item("first"), make_item("second"))
    monkeypatch.setattr(sys.modules[__name__], "BROKEN", Interrupting())
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 130
    assert "2 of 4 cells of first are done and kept" in outcome.stderr
    assert "skipped: none of its cells was computed yet" in outcome.stdout
    assert Path("run/first.csv").exists()


def test_report_again(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"))
    blocc("reproduce", "--quick", "--out", "run", "--quiet")
    Path("run/index.html").unlink()
    assert blocc("report", "run").exit_code == 0
    assert "Values grow" in Path("run/index.html").read_text()


def test_list_and_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"), make_item("samples", needs=("diabetes",)))
    outcome = blocc("reproduce", "--list")
    assert outcome.exit_code == 0
    assert [line.split()[:4] for line in outcome.stdout.splitlines() if "samples" in line] == [
        ["samples", "1:00", "2:00:00", "diabetes"]
    ]
    assert not COMPUTED
    outcome = blocc("reproduce", "third")
    assert outcome.exit_code == 2
    assert "there is no item 'third'; the items are first, samples" in outcome.stderr
    outcome = blocc("reproduce", "--data", "nowhere")
    assert outcome.exit_code == 2
    assert "--data must be a folder" in outcome.stderr


def test_what_is_not_installed_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, make_item("first"))
    sys.modules["reproduction.items"].UNAVAILABLE["other"] = "it needs sklearn, which is not installed"
    outcome = blocc("reproduce", "--quick", "--out", "run")
    assert outcome.exit_code == 0
    assert "skipped: other: it needs sklearn, which is not installed" in outcome.stdout
    assert "not available: other" in blocc("reproduce", "--list").stdout
    outcome = blocc("reproduce", "other")
    assert outcome.exit_code == 2
    assert "'other' is not available: it needs sklearn" in outcome.stderr


def test_every_item_of_the_paper_is_there() -> None:
    from reproduction import items

    assert items.UNAVAILABLE == {}
    assert list(items.MODULE_OF.values()) == list(items.MODULES)
    names = [study.name for item in items.ITEMS.values() if not item.needs for study in item.studies(True)]
    assert len(names) == len(set(names))  # they share one store
