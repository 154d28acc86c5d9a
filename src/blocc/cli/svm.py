"""The command ``blocc svm``: from labelled samples to a classifier, with its files and pictures."""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from blocc.cli.common import EXIT_CODES, parse_gamma
from blocc.cli.svm_input import (
    check_folder,
    check_options,
    check_presets,
    cut_parts,
    parse_kernel_gamma,
    part_sizes,
    read_data,
)
from blocc.errors import BloccError
from blocc.problems.loading import InputError
from blocc.report.progress import ProgressLine
from blocc.report.svm.svm_parts import SplitData
from blocc.report.svm.svm_summary import fit_summary, multiclass_summary, split_row, splits_summary
from blocc.report.svm.svm_tables import write_fit
from blocc.report.svm.svm_words import fit_text, splits_text
from blocc.result import Status
from blocc.svm.data.samples import BUILT_IN, expand_data

try:
    import typer
    from rich.console import Console
except ImportError:
    pass  # the entry point says what is missing


def svm_command(
    data: Annotated[
        str, typer.Argument(help=f"A CSV or LIBSVM file, or {', '.join(BUILT_IN)}.", metavar="DATA")
    ] = "breast_cancer",
    label: Annotated[str | None, typer.Option(help="Column of the labels in a CSV file: heading or position.")] = None,
    expand: Annotated[
        bool, typer.Option("--expand", help="Add all squares and products: 8 features become 45.")
    ] = False,
    standardize: Annotated[
        bool, typer.Option("--standardize/--no-standardize", help="Zero mean and unit variance in the training part.")
    ] = True,
    train: Annotated[int | None, typer.Option(help="Training samples. Default: 500 of 768, or in proportion.")] = None,
    validation: Annotated[
        int | None, typer.Option(help="Validation samples (150 of 768); the rest is for tests.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the split and of a random start.")] = 0,
    splits: Annotated[int, typer.Option(help="Repeat with so many random splits, with seeds from --seed on.")] = 1,
    kernel: Annotated[str | None, typer.Option(help="linear, rbf or poly. Default: linear.")] = None,
    kernel_gamma: Annotated[str | None, typer.Option(help="gamma of the kernel: scale, auto or a number.")] = None,
    degree: Annotated[int | None, typer.Option(help="Degree of the poly kernel. Default: 3.")] = None,
    coef0: Annotated[float | None, typer.Option(help="Constant of the poly kernel. Default: 0.")] = None,
    c_penalty: Annotated[str | None, typer.Option(help="Price of c: sum, squared or norm. Default: sum.")] = None,
    c_weight: Annotated[float | None, typer.Option(help="Weight of that price. Default: 10.")] = None,
    intercept_weight: Annotated[float | None, typer.Option(help="Ridge on the intercept. Default: 0.")] = None,
    gamma: Annotated[str | None, typer.Option(help="'auto', or a number: the penalty.")] = None,
    tolerance: Annotated[float | None, typer.Option(help="What the conditions of an optimum may lack.")] = None,
    start: Annotated[str | None, typer.Option(help="auto, or uniform: c drawn from [1, 5].")] = None,
    method: Annotated[str | None, typer.Option(help="exact, or pgd: Algorithm 1 of the paper.")] = None,
    step: Annotated[float | None, typer.Option(help="Step length of pgd. Default: 0.01.")] = None,
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of pgd. Default: 2000.")] = None,
    time_limit: Annotated[float | None, typer.Option(help="Seconds for each fit; the best so far is kept.")] = None,
    preset: Annotated[str, typer.Option(help="default, paper, or published (as the paper's code).")] = "default",
    cache: Annotated[Path | None, typer.Option(help="Folder for downloaded data sets.")] = None,
    top: Annotated[int, typer.Option(help="How many of the most forgiven samples to show.")] = 10,
    out: Annotated[Path | None, typer.Option(help="Folder for tables, pictures and the result.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON.")] = False,
    quiet: Annotated[bool, typer.Option(help="Print nothing; the exit code tells.")] = False,
) -> None:
    """Train a support vector machine that chooses which training samples to forgive.

    Ctrl-C keeps the best classifier so far. More than two classes are told apart one against the rest. The exit code
    says how it ended (of several fits: the worst); blocc --help lists them.
    """
    given = {
        "kernel": kernel,
        "kernel_gamma": parse_kernel_gamma(kernel_gamma),
        "degree": degree,
        "coef0": coef0,
        "c_penalty": c_penalty,
        "c_weight": c_weight,
        "intercept_weight": intercept_weight,
        "gamma": parse_gamma(gamma),
        "tolerance": tolerance,
        "start": start,
        "method": method,
        "step": step,
        "max_iterations": max_iterations,
        "time_limit": time_limit,
        "preset": preset,
    }
    settings = {name: value for name, value in given.items() if value is not None}
    check_options({**settings, "seed": seed, "splits": splits, "top": top})
    check_presets(settings)
    check_folder(out)
    samples = read_data(data, label, cache)
    samples = expand_data(samples) if expand else samples
    seeds = range(seed, seed + splits)
    cuts = cut_parts(samples, part_sizes(samples, train, validation), standardize, seeds)
    fit = _fit_two if len(samples.classes) == 2 else _fit_many
    first: _Fitted | None = None
    rows: list[dict[str, Any]] = []
    statuses: list[Status] = []
    with ProgressLine() as line:
        report = None if quiet or not sys.stderr.isatty() else line
        for number, cut in zip(seeds, cuts, strict=True):
            fitted = fit(cut, {**settings, "random_state": number}, report, top)
            fitted.summary["seed"] = number
            first = first or fitted
            rows.append(split_row(fitted.summary, number))
            statuses.append(Status(fitted.summary["status"]))
            if statuses[-1] is Status.INTERRUPTED:
                break
    assert first is not None
    model, parts, document = first
    if splits > 1:
        document["splits"] = splits_summary(rows)
    written = [] if out is None else write_fit(out, model, parts, document, rows if splits > 1 else ())
    if as_json:
        print(json.dumps(document, indent=2))
    elif not quiet:
        _print(splits_text(document) if splits > 1 else fit_text(document), {*statuses} == {Status.CONVERGED})
        for path in written:
            print(f"written: {path}")
    raise typer.Exit(max(EXIT_CODES[status] for status in statuses))


# --- fits ----------------------------------------------------------------------------------------------------------
class _Fitted(NamedTuple):
    model: Any
    parts: SplitData
    summary: dict[str, Any]


def _fit_two(parts: SplitData, settings: dict[str, Any], report: Any, top: int) -> _Fitted:
    from blocc.svm.estimator import BilevelSVC

    model = BilevelSVC(**settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(parts.X("train"), parts.y("train"), parts.X("validation"), parts.y("validation"), report=report)
    return _Fitted(model, parts, {**fit_summary(model, parts, top), "notes": _notes(caught)})


def _fit_many(parts: SplitData, settings: dict[str, Any], report: Any, top: int) -> _Fitted:
    """One class against the rest, each with a validation part of its own; scikit-learn's wrapper takes no report."""
    from sklearn.multiclass import OneVsRestClassifier

    from blocc.svm.estimator import BilevelSVC

    held_out = len(parts.validation)
    everything = np.concatenate([parts.train, parts.validation])
    learned = SplitData(parts.data, everything, np.empty(0), parts.test, parts.standardize)
    model = OneVsRestClassifier(BilevelSVC(**settings, validation_fraction=held_out / len(everything)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model.fit(learned.X("train"), learned.y("train"))
        except BloccError:
            raise
        except ValueError as error:  # too few samples to set some aside
            raise InputError(f"the samples cannot be used: {error}") from error
    return _Fitted(model, learned, {**multiclass_summary(model, learned), "notes": _notes(caught)})


def _notes(caught: list[warnings.WarningMessage]) -> list[str]:
    """What was warned about; that a fit did not converge is told by its status."""
    notes = [str(warning.message) for warning in caught if warning.category.__name__ != "ConvergenceWarning"]
    return list(dict.fromkeys(notes))


def _print(text: str, success: bool) -> None:
    first, _, rest = text.partition("\n")
    console = Console(soft_wrap=True, highlight=False)
    console.print(first, style="bold green" if success else "bold red", markup=False)
    console.print(rest, markup=False)
