"""A user's problem file: find the problem in it, and fit a start given as JSON to its variables."""

from __future__ import annotations

import importlib.util
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from blocc._lib.arrays import PyTree
from blocc._lib.files import shown, unique_keys
from blocc.errors import BloccError, InputError
from blocc.problem import BilevelProblem

if TYPE_CHECKING:
    from blocc.judge.verification import Verification
    from blocc.multi_result import MultiResult
    from blocc.result import Result
    from blocc.sets import ConvexSet


@runtime_checkable
class FrontProblem(Protocol):
    """A problem of a front end, which knows how to solve and to verify itself."""

    @property
    def x_set(self) -> ConvexSet:
        """Where the leader's decisions lie."""

    def solve(self, x0: Any = None, **options: Any) -> Result:
        """From one start."""

    def solve_many(self, x0s: Any = None, **options: Any) -> MultiResult:
        """From many."""

    def verify(self, result: Result, **options: Any) -> Verification:
        """Recompute what a result claims."""


def load_problem(argument: str, arguments: Mapping[str, Any] | None = None) -> BilevelProblem:
    """The problem that ``FILE.py`` or ``FILE.py:NAME`` stands for; ``arguments`` are those of the function NAME."""
    found: BilevelProblem = _load(argument, arguments, (BilevelProblem,))
    return found


def load_solvable(argument: str) -> BilevelProblem | FrontProblem:
    """The same, or a problem of a front end."""
    found: BilevelProblem | FrontProblem = _load(argument, None, (BilevelProblem, FrontProblem))
    return found


def _load(argument: str, arguments: Mapping[str, Any] | None, kinds: tuple[type, ...]) -> Any:
    file, name = split_name(argument)
    if not file.is_file():
        raise InputError(f"there is no file {str(file)!r}; give the path of a Python file that builds a problem")
    if file.suffix != ".py":
        raise InputError(f"{str(file)!r} is not a Python file; its name must end in .py")
    if arguments:
        return _built(problem_builder(argument), name, file, arguments, kinds)
    members = vars(run_file(file))
    if name:
        if name not in members:
            known = ", ".join(_problems(members, kinds)) or "none"
            raise InputError(f"{file} defines no {name!r}; the problems in it: {known}")
        return _built(members[name], name, file, {}, kinds)
    found = _problems(members, kinds)
    if not found:
        raise InputError(f"{file} holds no BilevelProblem, nor a function without arguments that returns one")
    if len(found) > 1:
        raise InputError(f"{file} holds several problems ({', '.join(found)}); choose one: {file}:{next(iter(found))}")
    ((only, value),) = found.items()
    return _built(value, only, file, {}, kinds)


def split_name(argument: str) -> tuple[Path, str]:
    """``FILE.py`` and NAME, which may be empty."""
    if Path(argument).exists() or ":" not in argument:
        return Path(argument), ""
    file, _, name = argument.rpartition(":")
    return Path(file), name


def problem_builder(argument: str) -> Callable[..., Any]:
    """The function NAME of ``FILE.py:NAME``."""
    file, name = split_name(argument)
    if not name:
        raise InputError(f"arguments need the function that takes them: write problem = '{file.name}:NAME'")
    value = vars(run_file(file)).get(name)
    if not callable(value):
        raise InputError(f"arguments need a function: {file} has no function {name!r}")
    return value


@contextmanager
def _importable_neighbours(file: Path) -> Iterator[None]:
    """While a user's code runs, the modules beside it can be imported, as if it were the program."""
    folder = str(file.resolve().parent)
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        if folder in sys.path:
            sys.path.remove(folder)


def run_file(file: Path) -> ModuleType:
    """The module in a user's file, run now."""
    spec = importlib.util.spec_from_file_location(f"blocc_problem_{file.stem}", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses in the file look themselves up here
    try:
        with _importable_neighbours(file):
            spec.loader.exec_module(module)
    except SyntaxError as error:
        raise InputError(f"{error.filename or file}, line {error.lineno}: {error.msg}") from error
    except BloccError as error:
        raise InputError(f"{file}: {error}") from error
    except (Exception, SystemExit) as error:
        raise InputError(f"{file} fails while it is read: {type(error).__name__}: {error}") from error
    return module


def _problems(members: dict[str, Any], kinds: tuple[type, ...]) -> dict[str, Any]:
    """Problems by name; if there is none, the functions that say they return one; if none does, those that might."""
    public = {key: value for key, value in members.items() if not key.startswith("_")}
    objects = {id(value): key for key, value in reversed(public.items()) if _is_one(value, kinds)}
    if objects:
        return {key: public[key] for key in reversed(objects.values())}
    functions = {
        key: value
        for key, value in public.items()
        if inspect.isfunction(value) and value.__module__ == members["__name__"] and _needs_nothing(value)
    }
    says = {key: f for key, f in functions.items() if "BilevelProblem" in str(f.__annotations__.get("return", ""))}
    return says or {key: f for key, f in functions.items() if key != "main"}


def _is_one(value: Any, kinds: tuple[type, ...]) -> bool:
    return isinstance(value, kinds) and not isinstance(value, type)


def _needs_nothing(function: Any) -> bool:
    free = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    return all(p.default is not p.empty or p.kind in free for p in parameters)


def _built(value: Any, name: str, file: Path, arguments: Mapping[str, Any], kinds: tuple[type, ...]) -> Any:
    if arguments or (inspect.isfunction(value) and _needs_nothing(value)):
        try:
            with _importable_neighbours(file):
                value = value(**arguments)
        except Exception as error:  # the user's own code: its message is the one that helps
            raise InputError(f"{name}() in {file} fails: {type(error).__name__}: {error}") from error
    if not _is_one(value, kinds):
        raise InputError(f"{name} in {file} must be a BilevelProblem or build one, got {type(value).__name__}")
    return value


def parse_x0(text: str, problem: BilevelProblem | FrontProblem) -> PyTree:
    """A start from JSON, in the structure of the leader's set."""
    try:
        value = json.loads(text, object_pairs_hook=unique_keys)
    except (ValueError, RecursionError) as error:
        wanted = "--x0 must be JSON such as 0.5, '[1, 2]' or '{\"price\": 3}'"
        raise InputError(f"{wanted}, got {shown(text)}") from error
    template = problem.x_set.template
    if not isinstance(problem, BilevelProblem) and not isinstance(value, dict) and len(template) == 1:
        value = {str(next(iter(template))): value}  # a single parameter of CVXPY's needs no name
    return _fit(template, value, "x0")


def _fit(template: PyTree, value: Any, name: str) -> PyTree:
    if isinstance(template, dict):
        if not isinstance(value, dict) or set(value) != set(map(str, template)):
            raise InputError(f"{name} must be an object with the keys {', '.join(map(str, template))}")
        return {key: _fit(part, value[str(key)], f"{name}.{key}") for key, part in template.items()}
    if isinstance(template, (list, tuple)):
        if not isinstance(value, list) or len(value) != len(template):
            raise InputError(f"{name} must be a list of {len(template)} parts")
        parts = [_fit(part, item, f"{name}[{i}]") for i, (part, item) in enumerate(zip(template, value, strict=True))]
        if isinstance(template, list):
            return parts
        return type(template)(*parts) if hasattr(template, "_fields") else tuple(parts)
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name} must be a number or a list of numbers, got {shown(value)}") from None
    if array.shape != template.shape:
        wanted = "a single number" if template.shape == () else f"an array of shape {template.shape}"
        raise InputError(f"{name} must be {wanted}, got {shown(value)}")
    return array
