"""The command ``blocc svm``: from labelled samples to a classifier, with its files and pictures."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import typer

from blocc.cli.common import EXIT_CODES, Output, check_folder, check_options, flag, parse_number
from blocc.errors import InputError
from blocc.outer.monitor import StopRequest, interruptible
from blocc.report.progress import ProgressLine
from blocc.report.svm.svm_parts import SplitData
from blocc.report.svm.svm_tables import fit_summary, multiclass_summary, split_row, splits_summary, write_fit
from blocc.report.svm.svm_words import fit_text, splits_text
from blocc.result import Status
from blocc.svm.data.samples import (
    BUILT_IN,
    LabelledData,
    expand_data,
    proportional_sizes,
    read_samples,
    split_indices,
)
from blocc.svm.data.text import ArgumentError
from blocc.svm.fitting import PRESETS

_CHOICES = {
    "kernel": ("linear", "rbf", "poly"),
    "c_penalty": ("sum", "squared", "norm"),
    "start": ("auto", "uniform"),
    "method": ("exact", "pgd"),
    "preset": tuple(PRESETS),
}
#: Options that mean something only beside another one.
_ONLY_WITH = {
    "kernel_gamma": ("kernel", ("rbf", "poly")),
    "degree": ("kernel", ("poly",)),
    "coef0": ("kernel", ("poly",)),
    "step": ("method", ("pgd",)),
    "max_iterations": ("method", ("pgd",)),
}


@dataclass(frozen=True)
class SampleOptions:
    """Which samples, and how they are cut."""

    data: Annotated[str, typer.Argument(help=f"A CSV or LIBSVM file, or {', '.join(BUILT_IN)}.", metavar="DATA")] = (
        "breast_cancer"
    )
    label: Annotated[str | None, typer.Option(help="Column of the labels in a CSV file: heading or position.")] = None
    expand: Annotated[bool, typer.Option("--expand", help="Add all squares and products: 8 features become 45.")] = (
        False
    )
    standardize: Annotated[
        bool, typer.Option("--standardize/--no-standardize", help="Zero mean and unit variance in the training part.")
    ] = True
    train: Annotated[int | None, typer.Option(help="Training samples. Default: 500 of 768, or in proportion.")] = None
    validation: Annotated[int | None, typer.Option(help="Validation samples (150 of 768); the rest is for tests.")] = (
        None
    )
    seed: Annotated[int, typer.Option(help="Seed of the split and of a random start.")] = 0
    splits: Annotated[int, typer.Option(help="Repeat with so many random splits, with seeds from --seed on.")] = 1
    cache: Annotated[Path | None, typer.Option(help="Folder for downloaded data sets.")] = None

    @property
    def seeds(self) -> range:
        """One for each split."""
        return range(self.seed, self.seed + self.splits)

    def parts(self) -> list[SplitData]:
        """The samples of each split."""
        samples = read_data(self.data, self.label, self.cache)
        samples = expand_data(samples) if self.expand else samples
        return cut_parts(samples, part_sizes(samples, self.train, self.validation), self.standardize, self.seeds)


@dataclass(frozen=True)
class ModelOptions:
    """Arguments of :class:`blocc.svm.BilevelSVC`; None leaves one at its default."""

    kernel: Annotated[str | None, typer.Option(help="linear, rbf or poly. Default: linear.")] = None
    kernel_gamma: Annotated[str | None, typer.Option(help="gamma of the kernel: scale, auto or a number.")] = None
    degree: Annotated[int | None, typer.Option(help="Degree of the poly kernel. Default: 3.")] = None
    coef0: Annotated[float | None, typer.Option(help="Constant of the poly kernel. Default: 0.")] = None
    c_penalty: Annotated[str | None, typer.Option(help="Price of c: sum, squared or norm. Default: sum.")] = None
    c_weight: Annotated[float | None, typer.Option(help="Weight of that price. Default: 10.")] = None
    intercept_weight: Annotated[float | None, typer.Option(help="Ridge on the intercept. Default: 0.")] = None
    gamma: Annotated[str | None, typer.Option(help="'auto', or a number: the penalty.")] = None
    tolerance: Annotated[float | None, typer.Option(help="What the conditions of an optimum may lack.")] = None
    start: Annotated[str | None, typer.Option(help="auto, or uniform: c drawn from [1, 5].")] = None
    method: Annotated[str | None, typer.Option(help="exact, or pgd: Algorithm 1 of the paper.")] = None
    step: Annotated[float | None, typer.Option(help="Step length of pgd. Default: 0.01.")] = None
    max_iterations: Annotated[int | None, typer.Option(help="Most steps of pgd. Default: 2000.")] = None
    time_limit: Annotated[
        float | None, typer.Option(help="Seconds for each fit, compilation included; the best so far is kept.")
    ] = None
    preset: Annotated[str, typer.Option(help="default; paper: the text's problem; svm: its program's.")] = "default"

    @property
    def arguments(self) -> dict[str, Any]:
        """What was given, as the estimator takes it."""
        kernel_gamma = parse_number("kernel_gamma", self.kernel_gamma, "scale", "auto")
        parsed = {"kernel_gamma": kernel_gamma, "gamma": parse_number("gamma", self.gamma, "auto")}
        return {name: value for name, value in {**vars(self), **parsed}.items() if value is not None}


def svm_command(
    samples: SampleOptions,
    model: ModelOptions,
    top: Annotated[int, typer.Option(help="How many of the most forgiven samples to show.")] = 10,
    *,
    output: Output,
) -> None:
    """Train a support vector machine that chooses which training samples to forgive.

    Ctrl-C keeps the best classifier so far. More than two classes are told apart one against the rest. The exit code
    says how it ended (of several fits: the worst); blocc --help lists them.
    """
    arguments = model.arguments
    check_options({**arguments, "seed": samples.seed, "splits": samples.splits, "top": top}, _CHOICES)
    check_settings(arguments)
    check_folder(output.out)
    fits = _fit_splits(samples, arguments, output, top)
    statuses = [Status(fitted.summary["status"]) for fitted in fits]
    rows = [split_row(fitted.summary, fitted.summary["seed"]) for fitted in fits] if samples.splits > 1 else []
    fitted, parts, document = fits[0]
    if rows:
        document["splits"] = splits_summary(rows)
    text, success = splits_text(document) if rows else fit_text(document), {*statuses} == {Status.CONVERGED}
    write = lambda out: write_fit(out, fitted, parts, document, rows)  # noqa: E731
    output.finish(lambda: document, text, success, write, max(EXIT_CODES[status] for status in statuses))


# --- what was given, checked before any work ------------------------------------------------------------------------
def check_settings(settings: dict[str, Any]) -> None:
    """Refuse what is wrong, and what would be ignored: options that a preset, another method or kernel decides."""
    if not np.isfinite(settings.get("coef0", 0.0)):
        raise InputError(f"--coef0 must be a finite number, got {settings['coef0']!r}")
    if find_spec("sklearn") is None:
        raise InputError('blocc svm needs scikit-learn, which is not installed; pip install "blocc[svm]"')
    preset = PRESETS[settings["preset"]]
    for name in settings:
        if name in preset:
            raise InputError(f"{flag(name)} is set by --preset {settings['preset']}; leave one of the two out")
    chosen = {"kernel": "linear", "method": "exact", **settings, **preset}
    for name, (other, wanted) in _ONLY_WITH.items():
        if name in settings and chosen[other] not in wanted:
            raise InputError(
                f"{flag(name)} has no effect with {flag(other)} {chosen[other]}; it is for {' and '.join(wanted)}"
            )


def read_data(source: str, label: str | None, cache: Path | None) -> LabelledData:
    """The samples, of at least two classes."""
    try:
        samples = read_samples(source, label=label, cache=cache)
    except ArgumentError as error:  # the reader's arguments are called like the options
        raise InputError(f"--{error}") from error
    if len(samples.classes) < 2:
        raise InputError(
            f"{samples.name} has one class only: every label is {samples.classes[0].item()!r}; two are needed, "
            "and --label tells the column of the labels in a CSV file"
        )
    return samples


def part_sizes(samples: LabelledData, train: int | None, validation: int | None) -> tuple[int, int]:
    """How many samples to train and to validate with; what is not given is in proportion to the rest."""
    n = samples.n_samples
    if n < 3:
        raise InputError(f"{samples.name} has {n} samples; one to train, one to validate and one to test are the least")
    given, most = {"--train": train, "--validation": validation}, n - 2
    for option, size in given.items():
        if size is not None and not 1 <= size <= most:
            raise InputError(f"{option} must lie between 1 and {most} of the {n} samples in {samples.name}, got {size}")
    usual = proportional_sizes(n)
    if train is not None and validation is None:
        validation = min(max(round((n - train) * usual[1] / (n - usual[0])), 1), n - train - 1)
    elif train is None and validation is not None:
        train = min(max(round((n - validation) * usual[0] / (n - usual[1])), 1), n - validation - 1)
    sizes = usual if train is None or validation is None else (train, validation)
    if sum(sizes) >= n:
        raise InputError(
            f"--train {sizes[0]} and --validation {sizes[1]} leave no test samples; their sum must be below {n}"
        )
    return sizes


def cut_parts(samples: LabelledData, sizes: tuple[int, int], standardize: bool, seeds: range) -> list[SplitData]:
    """One random split for each seed; every class must be there to learn from."""
    cuts = []
    for seed in seeds:
        train, validation, test = split_indices(samples.n_samples, train=sizes[0], validation=sizes[1], seed=seed)
        missing = np.setdiff1d(samples.classes, samples.y[train])
        if len(missing):
            raise InputError(
                f"the {len(train)} samples to learn from with --seed {seed} have none of the class "
                f"{missing[0].item()!r}; choose a larger --train or another --seed"
            )
        cuts.append(SplitData(samples, train, validation, test, standardize))
    return cuts


# --- fits ----------------------------------------------------------------------------------------------------------
class _Fitted(NamedTuple):
    model: Any
    parts: SplitData
    summary: dict[str, Any]


def _fit_splits(samples: SampleOptions, arguments: dict[str, Any], output: Output, top: int) -> list[_Fitted]:
    """A fit for each split; a signal ends them."""
    parts = samples.parts()
    fits: list[_Fitted] = []
    request = StopRequest()
    with ProgressLine() as line, interruptible(request):
        report = None if output.quiet or not sys.stderr.isatty() else line
        for seed, part in zip(samples.seeds, parts, strict=True):
            fitted = _fit(part, {**arguments, "random_state": seed}, report, top)
            fitted.summary["seed"] = seed
            fits.append(fitted)
            if request.reason is not None:
                break
    return fits


def _fit(parts: SplitData, settings: dict[str, Any], report: Any, top: int) -> _Fitted:
    from blocc.svm.estimator import BilevelSVC

    model = BilevelSVC(**settings)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(parts.X("train"), parts.y("train"), parts.X("validation"), parts.y("validation"), report=report)
    summary = fit_summary(model, parts, top) if len(model.classes_) == 2 else multiclass_summary(model, parts)
    return _Fitted(model, parts, {**summary, "notes": _notes(caught)})


def _notes(caught: list[warnings.WarningMessage]) -> list[str]:
    """What was warned about; that a fit did not converge is told by its status."""
    notes = [str(warning.message) for warning in caught if warning.category.__name__ != "ConvergenceWarning"]
    return list(dict.fromkeys(notes))
