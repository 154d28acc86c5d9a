"""What ``blocc svm`` is given, checked before any work: options, folder, samples and the parts they are cut into."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from blocc.errors import InputError
from blocc.report.figure import new_figure
from blocc.report.svm.svm_parts import SplitData
from blocc.svm.data.samples import LabelledData, proportional_sizes, read_samples, split_indices
from blocc.svm.data.text import ArgumentError
from blocc.svm.fitting import PRESETS

_CHOICES = {
    "kernel": ("linear", "rbf", "poly"),
    "c_penalty": ("sum", "squared", "norm"),
    "start": ("auto", "uniform"),
    "method": ("exact", "pgd"),
    "preset": ("default", "paper", "published"),
}
_POSITIVE = [
    "c_weight",
    "gamma",
    "kernel_gamma",
    "tolerance",
    "step",
    "time_limit",
    "max_iterations",
    "degree",
    "splits",
]
_NOT_NEGATIVE = ("intercept_weight", "seed", "top")
#: Options that mean something only beside another one.
_ONLY_WITH = {
    "kernel_gamma": ("kernel", ("rbf", "poly")),
    "degree": ("kernel", ("poly",)),
    "coef0": ("kernel", ("poly",)),
    "step": ("method", ("pgd",)),
    "max_iterations": ("method", ("pgd",)),
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def parse_kernel_gamma(text: str | None) -> float | str | None:
    """``scale``, ``auto`` or a number."""
    if text is None or text in ("scale", "auto"):
        return text
    try:
        return float(text)
    except ValueError:
        raise InputError(f"--kernel-gamma must be 'scale', 'auto' or a positive number, got {text!r}") from None


def check_options(options: dict[str, Any]) -> None:
    """Refuse words that are not a choice, and numbers out of range."""
    for name, allowed in _CHOICES.items():
        if name in options and options[name] not in allowed:
            raise InputError(f"{_flag(name)} must be {', '.join(allowed[:-1])} or {allowed[-1]}, got {options[name]!r}")
    for names, least, word in ((_POSITIVE, np.nextafter(0.0, 1.0), "positive"), (_NOT_NEGATIVE, 0.0, "nonnegative")):
        for name in names:
            value = options.get(name)
            if value is not None and not isinstance(value, str) and not least <= value < np.inf:
                raise InputError(f"{_flag(name)} must be {word} and finite, got {value!r}")
    if not np.isfinite(options.get("coef0", 0.0)):
        raise InputError(f"--coef0 must be a finite number, got {options['coef0']!r}")


def check_presets(settings: dict[str, Any]) -> None:
    """Refuse what would be ignored: options that a preset sets itself, or that belong to another method or kernel."""
    if find_spec("sklearn") is None:
        raise InputError('blocc svm needs scikit-learn, which is not installed; pip install "blocc[svm]"')
    preset = PRESETS[settings["preset"]]
    for name in settings:
        if name in preset:
            raise InputError(f"{_flag(name)} is set by --preset {settings['preset']}; leave one of the two out")
    chosen = {"kernel": "linear", "method": "exact", **settings, **preset}
    for name, (other, wanted) in _ONLY_WITH.items():
        if name in settings and chosen[other] not in wanted:
            raise InputError(
                f"{_flag(name)} has no effect with {_flag(other)} {chosen[other]}; it is for {' and '.join(wanted)}"
            )


def check_folder(out: Path | None) -> None:
    """Refuse a folder that cannot be made; pictures must be possible too."""
    if out is None:
        return
    for path in (out, *out.parents):
        if path.exists():
            if not path.is_dir():
                raise InputError(f"--out must be a folder, but {str(path)!r} is a file")
            break
    new_figure(1.0, 1.0)  # says so where matplotlib is missing


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
    for flag, size in (("--train", train), ("--validation", validation)):
        if size is not None and not 1 <= size <= n - 2:
            raise InputError(f"{flag} must lie between 1 and {n - 2} of the {n} samples in {samples.name}, got {size}")
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
    several = len(samples.classes) > 2
    cuts = []
    for seed in seeds:
        train, validation, test = split_indices(samples.n_samples, train=sizes[0], validation=sizes[1], seed=seed)
        learned = np.concatenate([train, validation]) if several else train
        missing = np.setdiff1d(samples.classes, samples.y[learned])
        if len(missing):
            raise InputError(
                f"the {len(learned)} samples to learn from with --seed {seed} have none of the class "
                f"{missing[0].item()!r}; choose a larger --train or another --seed"
            )
        cuts.append(SplitData(samples, train, validation, test, standardize))
    return cuts
