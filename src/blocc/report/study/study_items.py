"""An item of the paper out of a store: its rows, what they say, and its pictures."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocc.report.plots import figure_image
from blocc.report.study.study_views import ItemView, StudyView
from blocc.studies.engine import rows_of
from blocc.studies.item import Findings, Item
from blocc.studies.store import Store
from blocc.studies.study import Row


def view_item(item: Item, module: str, store: str | Path, *, quick: bool) -> ItemView:
    """What the rows so far say; where they do not suffice, why not.

    :param module: name of the module of ``reproduction.pictures`` that draws the item; it need not exist
    """
    views = study_views(item, store, quick=quick)
    if not any(view.rows for view in views):
        return ItemView(item.name, item.title, skipped="none of its cells was computed yet")
    rows: dict[str, Sequence[Row]] = {view.study.name: view.rows for view in views}
    try:
        findings = item.conclude(rows)
    except Exception as error:  # half of a study may lack what a table needs
        reason = f"{type(error).__name__}: {error}"
        return ItemView(item.name, item.title, skipped=f"its rows do not make its tables ({reason})")
    pictures, trouble = _pictures(module, rows, findings)
    return ItemView(item.name, item.title, findings, pictures, trouble=trouble)


def study_views(item: Item, store: str | Path, *, quick: bool) -> list[StudyView]:
    """The studies of an item, each with the rows it has so far; none where there is no store yet."""
    studies = item.studies(quick)
    if not Path(store).exists():
        return [StudyView(study, []) for study in studies]
    with Store(store, read_only=True) as opened:
        return [StudyView(study, rows_of(study, opened)) for study in studies]


def share_missing(views: Sequence[StudyView]) -> float:
    """Which part of the cells must still be computed, between 0 and 1."""
    total = sum(view.total for view in views)
    return 1.0 - sum(len(view.done) for view in views) / total if total else 0.0


def _pictures(module: str, rows: Mapping[str, Sequence[Row]], findings: Findings) -> tuple[dict[str, bytes], str]:
    """PNG files by name, and what went wrong."""
    name = f"reproduction.pictures.{module}"
    if (
        not module
        or importlib.util.find_spec("reproduction.pictures") is None
        or importlib.util.find_spec(name) is None
    ):
        return {}, ""
    try:
        drawn: Mapping[str, Any] = importlib.import_module(name).draw(rows, findings)
        return {title: figure_image(figure) for title, figure in drawn.items()}, ""
    except Exception as error:  # a picture that cannot be drawn must not cost the tables
        return {}, f"The pictures could not be drawn ({type(error).__name__}: {error})."
