"""What an item of the paper is: the studies that compute it, the tables their rows become, and its pictures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blocc.kit.figure import figure_image
from blocc.report.study.study_views import Findings, ItemView, StudyView
from blocc.studies.engine import rows_of
from blocc.studies.store import Store
from blocc.studies.study import Row, Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: What stands on top of a run at reduced size.
QUICK = "Reduced size (--quick): fewer runs and smaller grids than the paper's. Verdicts may differ at full size."

RowsByStudy = Mapping[str, Sequence[Row]]
#: Packages that an item may lack, by the name they are imported by; an item that lacks one is skipped.
OPTIONAL_PACKAGES = {"matplotlib": "matplotlib", "sklearn": "scikit-learn", "numba": "numba"}


@dataclass(frozen=True)
class Shown:
    """What docs/reproduce.md shows of a table: columns by what they are called there, and some of its rows.

    :param table: its place among the tables of the findings
    """

    table: int
    columns: Mapping[str, str]
    rows: Callable[[Mapping[str, Any]], bool] = lambda row: True


@dataclass(frozen=True)
class Item:
    """One table or figure of the paper, reproducible at full or at reduced size.

    :param studies: called with True for the reduced size
    :param conclude: called with the rows of all studies, by their names. A row holds the cell's parameters, the
        function's columns, ``status`` ("done" or "failed") and ``error``; failed rows lack the function's columns
    :param seconds: expected on two cores, reduced and full
    :param needs: data sets by name; an item is skipped where none of them can be had
    :param draw: pictures by name, from the rows
    :param shown: what docs/reproduce.md shows of its tables, beside all statements
    """

    name: str
    title: str
    studies: Callable[[bool], Sequence[Study]]
    conclude: Callable[[RowsByStudy], Findings]
    seconds: tuple[float, float]
    needs: Sequence[str] = ()
    draw: Callable[[RowsByStudy], Mapping[str, Figure]] = lambda rows: {}
    shown: Sequence[Shown] = ()


def missing_package(error: ImportError) -> str | None:
    """The optional package whose absence an error reports; None for every other error, which is a defect."""
    for found in (error, error.__cause__):  # the package's own message about scikit-learn has the error as its cause
        if isinstance(found, ModuleNotFoundError):
            return OPTIONAL_PACKAGES.get((found.name or "").partition(".")[0])
    return None


def view_item(item: Item, store: Path, *, quick: bool) -> ItemView:
    """What the rows so far say; where they do not suffice, why not."""
    views = study_views(item, store, quick=quick)
    if not any(view.rows for view in views):
        return ItemView(item.name, item.title, skipped="none of its cells was computed yet")
    rows = {view.study.name: view.rows for view in views}
    try:
        findings = item.conclude(rows)
    except Exception as error:  # half of a study may lack what a table needs
        reason = f"{type(error).__name__}: {error}"
        return ItemView(item.name, item.title, skipped=f"its rows do not make its tables ({reason})")
    pictures, documents, trouble = _pictures(item, rows)
    notice = QUICK if quick else ""
    return ItemView(item.name, item.title, findings, pictures, trouble=trouble, notice=notice, documents=documents)


def study_views(item: Item, store: Path, *, quick: bool) -> list[StudyView]:
    """The studies of an item, each with the rows it has so far; none where there is no store yet."""
    studies = item.studies(quick)
    if not store.exists():
        return [StudyView(study, []) for study in studies]
    with Store(store, read_only=True) as opened:
        return [StudyView(study, rows_of(study, opened)) for study in studies]


def _pictures(item: Item, rows: RowsByStudy) -> tuple[dict[str, bytes], dict[str, bytes], str]:
    """PNG files by name, the same for print by file name, and what went wrong."""
    try:
        figures = item.draw(rows)
        printed = {f"{title}.pdf": figure_image(figure, "pdf") for title, figure in figures.items()}
        return {title: figure_image(figure) for title, figure in figures.items()}, printed, ""
    except Exception as error:  # a picture that cannot be drawn must not cost the tables
        if isinstance(error, ImportError) and missing_package(error) is None:
            raise
        return {}, {}, f"The pictures could not be drawn ({type(error).__name__}: {error})."
