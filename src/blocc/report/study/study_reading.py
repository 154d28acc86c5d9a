"""From a store to what a report is made of; a study that is still running can be read, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from blocc.report.study.study_views import ItemView, Report, StudyView
from blocc.studies.engine import rows_of
from blocc.studies.locking import exclusive
from blocc.studies.store import Store, StoredStudy
from blocc.studies.study import StudyError


def read_report(
    path: str | Path,
    title: str = "",
    *,
    shown: Mapping[str, Sequence[str]] | None = None,
    items: Sequence[ItemView] = (),
) -> Report:
    """Every study of a store with its rows so far.

    :param title: heads the page; by default the name of the only study, or of the store's folder
    :param shown: columns to draw, by the name of the study
    """
    file = Path(path)
    columns = shown or {}
    with Store(file, read_only=True) as store:
        stored = store.studies()
        busy = is_running(file)
        views = [
            StudyView(
                entry.study,
                rows_of(entry.study, store, version=entry.version),
                columns.get(entry.study.name, ()),
                busy and entry.ended is None,
            )
            for entry in stored
        ]
    only = views[0].study.name if len(views) == 1 else file.resolve().parent.name
    return Report(title or only, views, items, _facts(stored))


def is_running(store: Path) -> bool:
    """Whether some program is running a study in this store now."""
    if not store.with_name(f"{store.name}.lock").exists():
        return False
    try:
        with exclusive(store, "somebody"):
            return False
    except StudyError:
        return True


def _facts(stored: Sequence[StoredStudy]) -> dict[str, Any]:
    """How and where the newest of the studies was run."""
    if not stored:
        return {}
    newest = max(stored, key=lambda entry: entry.started)
    names = {"machine": "machine", "packages": "version"}
    return {names.get(key, key): value for key, value in newest.settings.items()}
