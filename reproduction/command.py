"""The command ``python -m reproduction``: the tables and figures of the paper, computed again."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from blocc._lib.files import json_bytes
from blocc.cli.common import check_folder
from blocc.cli.ending import INTERRUPTED, ended_by_signals, exit_code
from blocc.cli.studies import (
    EXECUTOR_HELP,
    PAGE,
    REPORT_SETTINGS,
    SCHEDULER_HELP,
    SOME_FAILED,
    STORE,
    WORKERS_HELP,
    Computing,
    find_store,
    print_counts,
    read_report_settings,
    run_here,
)
from blocc.errors import BloccError, InputError
from blocc.kit.storage import write_files
from blocc.report.study.study_page import write_page
from blocc.report.study.study_progress import clock
from blocc.report.study.study_tables import item_files, print_item, print_table
from blocc.report.study.study_views import ItemView, StudyView, read_report
from reproduction import page
from reproduction.data_sets import FOLDER, data_folder, why_missing
from reproduction.item import Item, study_views, view_item
from reproduction.items import load_items

BAD_INPUT = 2
_TITLE = "Experiments of the paper"
_ABOUT = """Compute the tables and figures of the paper again, and say which of its statements hold.

It may be stopped at any time: the same command goes on where it stopped. Exit code 0: every cell is done;
3: some cells failed; 130 or 143: stopped by Ctrl-C or SIGTERM; 2: bad input."""


def make_parser() -> argparse.ArgumentParser:
    """The options of the command."""
    parser = argparse.ArgumentParser(
        "python -m reproduction", description=_ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    option = parser.add_argument
    option("items", nargs="*", metavar="ITEM", help="items by name; default: all")
    option("--quick", action="store_true", help="reduced sizes: minutes instead of hours")
    option("--list", action="store_true", help="only list the items")
    option("--report", action="store_true", help="compute nothing: show what a run in --out has so far")
    option("--out", type=Path, default=Path("runs/reproduction"), help="folder for rows, tables, pictures and the page")
    option("--data", type=Path, help=f"folder with NAME.libsvm; default: ${FOLDER}, else data/ in the clone")
    option("--executor", default="serial", help=EXECUTOR_HELP)
    option("--workers", type=int, help=WORKERS_HELP)
    option("--scheduler", help=SCHEDULER_HELP)
    option("--fresh", action="store_true", help="forget what was computed before")
    option("--write-docs", action="store_true", help="write the figures of complete items into docs/reproduce.md")
    option("--quiet", action="store_true", help="print nothing; the exit code tells")
    return parser


def main(arguments: Sequence[str]) -> int:
    """Run the command; its exit code."""
    options = make_parser().parse_args(arguments)
    try:
        if options.list:
            return _list()
        with ended_by_signals() as told:
            code = _report(options) if options.report else _reproduce(options)
        return exit_code(told) or code
    except BloccError as error:
        print(f"reproduction: {error}", file=sys.stderr)
        return BAD_INPUT


def _list() -> int:
    items, unavailable = load_items()
    rows = [
        {
            "item": item.name,
            "quick": clock(item.seconds[0]),
            "full": clock(item.seconds[1]),
            "needs": ", ".join(item.needs),
            "title": item.title,
        }
        for item in items.values()
    ]
    print_table(rows, "Items of the paper", "with the time each takes at reduced and at full size")
    for name, reason in unavailable.items():
        print(f"not available: {name}: {reason}")
    return 0


def _reproduce(options: argparse.Namespace) -> int:
    items, unavailable = load_items()
    chosen = choose(options.items, items, unavailable)
    folder = given_folder(options.data)
    computing = Computing(options.executor, options.workers, options.scheduler, options.fresh, options.quiet)
    check_folder(options.out)
    # Items look for their data here, and so do worker processes, which inherit it.
    os.environ[FOLDER] = str(folder)
    lacking = {item.name: missing_data(item) for item in chosen}
    skipped = {
        item.name: "; ".join(lacking[item.name].values())
        for item in chosen
        if item.needs and len(lacking[item.name]) == len(item.needs)
    }
    ready = [item for item in chosen if item.name not in skipped]
    before = {item.name: study_views(item, options.out / STORE, quick=options.quick) for item in ready}
    if not options.quiet:
        for name, reason in {**skipped, **({} if options.items else unavailable)}.items():
            print(f"skipped: {name}: {reason}")
        for name, why in ((item.name, why) for item in ready for why in lacking[item.name].values()):
            print(f"left out of {name}: {why}")
        print(expectation(ready, before, quick=options.quick, fresh=options.fresh))
    settings = {"title": _TITLE, "items": [item.name for item in ready], "quick": options.quick}
    write_files(options.out, {REPORT_SETTINGS: json_bytes(settings)})
    finished = run_here([view.study for views in before.values() for view in views], options.out / STORE, computing)
    failed = _write_report(ready, [item for item in chosen if item.name in skipped], skipped, options)
    return INTERRUPTED if not finished else SOME_FAILED if failed else 0


def _report(options: argparse.Namespace) -> int:
    """Show again what the run in a folder has computed so far."""
    settings = read_report_settings(find_store(options.out).parent)
    items, _ = load_items()
    options.quick = settings["quick"]
    _write_report([items[name] for name in settings["items"] if name in items], [], {}, options)
    return 0


def _write_report(
    ready: Sequence[Item], others: Sequence[Item], reasons: Mapping[str, str], options: argparse.Namespace
) -> bool:
    """Print and write what the rows of the items say; True where cells failed or rows do not make a table.

    :param others: items that are only mentioned, for these reasons
    """
    store: Path = options.out / STORE
    views = [view_item(item, store, quick=options.quick) for item in ready]
    written = []
    for item, view in zip(ready, views, strict=True):
        if view.findings is not None:
            written += write_files(options.out, item_files(view, study_views(item, store, quick=options.quick)))
    failed = any(view.findings is None for view in views)
    if options.write_docs:
        complete = {
            item.name: (item, view.findings)
            for item, view in zip(ready, views, strict=True)
            if view.findings
            and all(not of.missing and not of.failed for of in study_views(item, store, quick=options.quick))
        }
        written.append(page.write_page(complete, quick=options.quick, path=page.PAGE))
    views += [ItemView(item.name, item.title, skipped=reasons[item.name]) for item in others]
    if not options.quiet:
        for view in views:
            print_item(view)
    if store.exists():
        report = read_report(store, _TITLE, items=views)
        written.append(write_page(report, options.out / PAGE))
        failed = failed or report.failed > 0
        if not options.quiet:
            print()
            print_counts(report)
    if not options.quiet:
        for path in written:
            print(f"written: {path}")
    return failed


def choose(names: Sequence[str], items: Mapping[str, Item], unavailable: Mapping[str, str]) -> list[Item]:
    """The items of these names, in the order of the paper; all where none is named.

    Hyphens and underscores are the same.
    """
    wanted = [name.replace("-", "_") for name in names]
    for name, given in zip(wanted, names, strict=True):
        if name in unavailable:
            raise InputError(f"the item {given!r} is not available: {unavailable[name]}")
        if name not in items:
            raise InputError(f"there is no item {given!r}; the items are {', '.join(items)}")
    return [item for name, item in items.items() if not wanted or name in wanted]


def given_folder(given: Path | None) -> Path:
    """Where data sets are looked for."""
    if given is None:
        return data_folder()
    if not given.is_dir():
        raise InputError(f"--data must be a folder, but there is none at {str(given)!r}")
    return given.resolve()


def missing_data(item: Item) -> dict[str, str]:
    """The data sets that an item lacks, each with the reason as a sentence."""
    return {name: reason for name in item.needs if (reason := why_missing(name))}


def expectation(items: Sequence[Item], before: Mapping[str, Sequence[StudyView]], *, quick: bool, fresh: bool) -> str:
    """How long it will take, as a sentence."""
    seconds = 0.0
    cells = stored = 0
    for item in items:
        total = sum(view.total for view in before[item.name])
        done = 0 if fresh else sum(len(view.done) for view in before[item.name])
        seconds += item.seconds[0 if quick else 1] * (1.0 - done / total)
        cells += total
        stored += done
    known = f", {stored} of them done before" if stored else ""
    size = "reduced size" if quick else "full size"
    names = ", ".join(item.name for item in items) or "nothing"
    return f"{names} at {size}: {cells} cells{known}; expected time {clock(seconds)} on two cores"
