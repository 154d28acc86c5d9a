"""What a sweep can be about, a problem, a network or samples, and which options each of them takes."""

from __future__ import annotations

import inspect
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from blocc._lib.files import shown, stays_inside
from blocc.errors import InputError, OptionError
from blocc.methods.registry import METHODS as OTHER_METHODS
from blocc.methods.registry import NAMES, prepare
from blocc.options import Options
from blocc.presets import make_options
from blocc.problems.loading import problem_builder, split_name
from blocc.solve import start_in
from blocc.studies import sweep_cells
from blocc.svm.data import samples as svm_data
from blocc.svm.data.samples import read_samples
from blocc.transport.design.options import DesignOptions
from blocc.transport.network import files as transport_files
from blocc.transport.network.files import read_network
from blocc.transport.network.network import TransportNetwork
from blocc.transport.network.readers.rules import FillRules

PROBLEMS = "FILE.py, FILE.py:NAME, toy, three, nine, seville, network:PATH or svm:DATA"

_CELLS = "blocc.studies.sweep_cells"


class Target(ABC):
    """What a study works on."""

    function: str  #: computes a cell
    fixed: dict[str, Any]  #: parameters that name the target, the same in every cell
    columns: tuple[str, ...]  #: of a row
    shown: tuple[str, ...]  #: columns worth a picture where the user names none
    options: tuple[str, ...]  #: names of its options

    @abstractmethod
    def check(self, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Raise a ``BloccError`` where a cell with these options could not be computed."""


def confined(text: str, folder: Path, key: str, anywhere: bool) -> Path:
    """The path that a study names, relative to ``folder``: in there or in the working folder, or ``anywhere``.

    A study may come from outside, and what it names is read, run or overwritten.
    """
    path = folder / text
    if "\0" in text:
        raise InputError(f"{key} must be a path, got {shown(text)}")
    if not anywhere and not stays_inside(path, folder, Path.cwd()):
        raise InputError(
            f"{key} leads to {shown(str(path.resolve()))}, outside the folder of the study and the working folder; "
            "allow it with --anywhere"
        )
    return path


def find_target(problem: str, folder: Path, anywhere: bool = False) -> Target:
    """What the text stands for; paths are relative to ``folder``, see :func:`confined`."""
    kind, colon, source = problem.partition(":")
    if problem == sweep_cells.TOY:
        return ProblemTarget(problem)
    if problem in transport_files.BUILT_IN:
        return NetworkTarget(problem)
    if kind in ("network", "svm") and colon:
        if not source:
            raise InputError(f"problem must name a file after {kind}:, got {problem!r}")
        built_in = transport_files.BUILT_IN if kind == "network" else svm_data.BUILT_IN
        place = source if source in built_in else str(confined(source, folder, "problem", anywhere).resolve())
        return NetworkTarget(place) if kind == "network" else SamplesTarget(place)
    file, _ = split_name(str(confined(problem, folder, "problem", anywhere)))
    if file.suffix != ".py":
        raise InputError(f"problem must be {PROBLEMS}, got {problem!r}")
    if not file.is_file():
        raise InputError(f"problem names the file {str(file)!r}, which does not exist; paths begin at the TOML file")
    _, name = split_name(str(folder / problem))
    return ProblemTarget(str(file.resolve()) + (f":{name}" if name else ""), sweep_cells.file_hash(file))


class ProblemTarget(Target):
    """A problem file, or the toy: solved by :func:`blocc.solve` and every method behind it."""

    function = f"{_CELLS}:solve_cell"
    columns = sweep_cells.SOLVE_COLUMNS
    shown = ("upper_value", "gap", "distance", "seconds")

    def __init__(self, problem: str, sha256: str | None = None) -> None:
        self.fixed = {"problem": problem, "sha256": sha256}
        names = ["method", "preset", *(option.name for option in fields(Options) if option.name != "seed")]
        for kind in OTHER_METHODS.values():
            names += [*kind.names, *kind.default_counts]
        self.options = tuple(dict.fromkeys(names))
        self._checked: set[str] = set()

    def check(self, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Check options as :func:`blocc.solve` does, and arguments against the function's signature."""
        given = dict(options)
        method, preset = given.pop("method", "blocc"), given.pop("preset", "default")
        if method not in NAMES:
            raise OptionError(f"method must be one of {', '.join(map(repr, NAMES))}, got {method!r}")
        if "inner" in given and not isinstance(given["inner"], str):
            raise OptionError(f"inner must be the name of an inner solver, got {given['inner']!r}")
        self._check_arguments(arguments)
        if method == "blocc":
            make_options(preset, given)
        else:
            prepare(self._problem(arguments), method, preset, given)

    def check_start(self, x0: Any, arguments: Mapping[str, Any]) -> None:
        """Raise a ``BloccError`` where x0 is no start."""
        problem = self._problem(arguments)
        start_in(problem, sweep_cells.fitted_start(problem, x0))

    def _problem(self, arguments: Mapping[str, Any]) -> Any:
        return sweep_cells.cached_problem(
            self.fixed["problem"], self.fixed["sha256"], json.dumps(dict(arguments), sort_keys=True)
        )

    def _check_arguments(self, arguments: Mapping[str, Any]) -> None:
        names = ",".join(sorted(arguments))
        if names in self._checked:
            return
        if arguments:
            if self.fixed["problem"] == sweep_cells.TOY:
                raise InputError("arguments are for functions in a problem file; the toy takes none")
            try:
                inspect.signature(problem_builder(self.fixed["problem"])).bind(**arguments)
            except TypeError as error:
                raise InputError(f"arguments do not fit {self.fixed['problem']}: {error}") from error
        self._problem(arguments)  # one is built, so that a file that cannot be used is noticed now
        self._checked.add(names)


class NetworkTarget(Target):
    """A transport network, designed by ``design_network``."""

    function = f"{_CELLS}:design_cell"
    columns = sweep_cells.DESIGN_COLUMNS
    shown = ("utility", "links_built", "distance", "seconds")
    options = tuple(
        option.name for part in (DesignOptions, FillRules) for option in fields(part) if option.name != "seed"
    )

    def __init__(self, problem: str) -> None:
        self.fixed = {"problem": problem, "sha256": sweep_cells.network_hash(problem)}
        self._networks: dict[str, TransportNetwork] = {}

    def check(self, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Check options as ``design_network`` does, and fill rules on the network itself."""
        _refuse_arguments(arguments)
        _check_switches(options, ("symmetric", "drop_unreachable"))
        rules, given = sweep_cells.split_rules(options)
        key = json.dumps(rules, sort_keys=True)
        if key not in self._networks:
            self._networks[key] = read_network(self.fixed["problem"], rules=FillRules(**rules))
        DesignOptions.from_names(given).capacity_set(self._networks[key])


class SamplesTarget(Target):
    """Labelled samples, to which support vector machines are fitted."""

    function = f"{_CELLS}:svm_cell"
    columns = sweep_cells.SVM_COLUMNS
    shown = ("test_accuracy", "upper_value", "support_vectors", "seconds")

    def __init__(self, problem: str) -> None:
        try:
            from blocc.svm.estimator import BilevelSVC
        except ModuleNotFoundError as error:
            raise InputError(f'svm: needs {error.name}; pip install "blocc[svm]"') from error
        self._estimator = BilevelSVC
        self.samples = read_samples(problem)
        if len(self.samples.classes) != 2:
            raise InputError(f"{problem} must have two classes of samples, got {len(self.samples.classes)}")
        self.fixed = {"problem": problem, "sha256": sweep_cells.samples_hash(self.samples)}
        own = [name for name in BilevelSVC().get_params() if name not in ("random_state", "validation_fraction")]
        self.options = (*own, *_COUNTS, *_SWITCHES)

    def check(self, options: Mapping[str, Any], arguments: Mapping[str, Any]) -> None:
        """Check options as ``BilevelSVC`` does, and the sizes of the split."""
        _refuse_arguments(arguments)
        _check_switches(options, _SWITCHES)
        for name in _COUNTS:
            value = options.get(name, 1)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
        own = {name: value for name, value in options.items() if name not in (*_COUNTS, *_SWITCHES)}
        if own.get("kernel") == "precomputed":
            raise OptionError("kernel must be 'linear', 'rbf' or 'poly'; a sweep computes no kernel of its own")
        if own.get("start", "auto") not in ("auto", "uniform"):
            raise OptionError(f"start must be 'auto' or 'uniform', got {own['start']!r}")
        self._estimator(**own).fit_options()  # every check of a fit, and nothing else
        n = self.samples.n_samples
        sizes = sweep_cells.split_sizes(n, options.get("train"), options.get("validation"))
        if sum(sizes) >= n:
            raise OptionError(
                f"train = {sizes[0]} and validation = {sizes[1]} leave no test samples; their sum must be below {n}"
            )


#: Options of the split of samples, beside those of ``BilevelSVC``.
_COUNTS, _SWITCHES = ("train", "validation"), ("expand", "standardize")


def _check_switches(options: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(options.get(name, False), bool):
            raise OptionError(f"{name} must be true or false, got {options[name]!r}")


def _refuse_arguments(arguments: Mapping[str, Any]) -> None:
    if arguments:
        raise InputError("arguments are for functions in a problem file; networks and samples take none")
