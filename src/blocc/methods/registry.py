"""The methods by name, and the way in from ``solve``: options sorted and checked, one run, its judged result.

A method of another package is known by name where that package declares it under the entry points ``blocc.methods``;
any :class:`~blocc.methods.base.Method`, or its class, can be given in the place of a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from numbers import Integral, Real
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.errors import OptionError
from blocc.methods.aipod import Aipod, EAipod
from blocc.methods.barrier import Barrier
from blocc.methods.base import Method, require
from blocc.methods.bvfsm import Bvfsm
from blocc.methods.dca import IpDwca, VfIdca
from blocc.methods.execute import Callback, MethodOptions, MethodRun, Report
from blocc.methods.gam import Gam
from blocc.methods.pbgd import AltPbgd, PbgdFree
from blocc.methods.single_loop import BicGaffa, LvHba, Sflcb
from blocc.methods.stochastic import Stochastic
from blocc.options import Options
from blocc.outer.monitor import Stop, StopReason
from blocc.problem import BilevelProblem
from blocc.result import Result

#: blocc's own method is not in this room; every other one is.
_KINDS = (LvHba, Gam, Bvfsm, Aipod, EAipod, BicGaffa, Sflcb, AltPbgd, PbgdFree, Barrier, VfIdca, IpDwca)
METHODS: dict[str, type[Method]] = {kind.name: kind for kind in _KINDS}
#: For data too many for one step: where there are fewer, the others compare with them.
SAMPLED: dict[str, type[Method]] = {Stochastic.name: Stochastic}
NAMES = ("blocc", *METHODS)
_COMMON = tuple(field.name for field in fields(MethodOptions))


@cache
def _declared() -> dict[str, EntryPoint]:
    """Methods that other packages declare; none of them is loaded before it is asked for."""
    taken = (*NAMES, *SAMPLED)
    return {one.name: one for one in entry_points(group="blocc.methods") if one.name not in taken}


def known_names() -> tuple[str, ...]:
    """Every method that can be called by its name, those of other packages last."""
    return (*NAMES, *SAMPLED, *_declared())


def kind_of(method: str | Method | type[Method]) -> type[Method]:
    """The class of a method that is given by its name, as a class or with its numbers."""
    if isinstance(method, Method):
        return type(method)
    if isinstance(method, type) and issubclass(method, Method):
        return method
    if isinstance(method, str) and (found := {**METHODS, **SAMPLED}.get(method)) is not None:
        return found
    if isinstance(method, str) and method in _declared():
        declared = _declared()[method]
        try:
            loaded = declared.load()
        except Exception as error:  # another package's code: whatever it raises is the reason
            raise OptionError(f"method {method!r} cannot be loaded from {declared.value}: {error}") from error
        if not (isinstance(loaded, type) and issubclass(loaded, Method)):
            raise OptionError(f"method {method!r}: {declared.value} must be a subclass of blocc.methods.Method")
        return loaded
    known = ", ".join(map(repr, known_names()))
    raise OptionError(f"method must be one of {known}, or a blocc.methods.Method, got {method!r}")


def name_of(method: str | Method | type[Method]) -> str:
    """What a method is called in tables and settings."""
    return method if isinstance(method, str) else kind_of(method).name or kind_of(method).__name__


def make_method(method: str | Method | type[Method], preset: str = "default", **given: Any) -> Method:
    """A method with its numbers: those of a preset, those given by name, and automatic ones for the rest."""
    kind, name = kind_of(method), name_of(method)
    if isinstance(method, Method):
        own = {key: given.pop(key) for key in list(given) if key in _own_names(kind)}
        if given or preset != "default":
            raise OptionError(f"method {name!r} is given with its numbers: give the others there, too")
        numbers, counts = _sorted_numbers(kind, name, {**method.given, **method.counts})
        try:
            hash(method.own_fields)
        except TypeError as error:
            fields_named = ", ".join(key for key, _ in method.own_fields)
            raise OptionError(f"method {name!r}: its own fields ({fields_named}) must be hashable: {error}") from error
        try:
            return replace(method, given=numbers, counts=counts, **own)
        except TypeError as error:
            cure = "its class must be made of given numbers and counts; write further fields as those of a dataclass"
            raise OptionError(f"method {name!r}: {cure} ({error})") from error
    if preset != "default" and preset not in kind.presets:
        known = ", ".join(map(repr, ("default", *kind.presets)))
        raise OptionError(f"preset of method {name!r} must be one of {known}, got {preset!r}")
    own = {key: given.pop(key) for key in list(given) if key in _own_names(kind)}
    if given.get("batches") is not None:
        raise OptionError(f"method {name!r} takes all data in every step; batches is for method='stochastic'")
    given.pop("batches", None)
    return kind(*_sorted_numbers(kind, name, {**kind.presets.get(preset, {}), **given}), **own)


def _own_names(kind: type[Method]) -> list[str]:
    """Fields that a method has beside its numbers and counts."""
    return [one.name for one in fields(kind) if one.name not in ("given", "counts")]


def _sorted_numbers(kind: type[Method], name: str, given: Mapping[str, Any]) -> tuple[dict[str, float], dict[str, int]]:
    """Numbers and counts, checked."""
    numbers: dict[str, float] = {}
    counts: dict[str, int] = {}
    for key, value in given.items():
        if key in kind.default_counts:
            least = 0 if key in kind.switches else 1
            if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
                raise OptionError(f"{key} must be a whole number, at least {least}, got {value!r}")
            counts[key] = int(value)
        elif key in kind.names:
            if not isinstance(value, Real) or isinstance(value, bool) or not np.isfinite(float(value)) or value < 0:
                raise OptionError(f"{key} must be a nonnegative number, got {value!r}")
            numbers[key] = float(value)
        else:
            known = ", ".join((*kind.names, *kind.default_counts, *_own_names(kind)))
            raise OptionError(f"unknown option {key!r} of method {name!r}; its numbers are {known}")
    return numbers, counts


def prepare(
    problem: BilevelProblem,
    method: str | Method | type[Method],
    preset: str,
    options: Mapping[str, Any],
    callback: Callback | None = None,
    report: Report | None = None,
) -> MethodRun:
    """Check everything that can be checked before a run of :func:`run_method`."""
    common = {name: value for name, value in options.items() if name in _COMMON}
    shared = {name: value for name, value in common.items() if name in {one.name for one in fields(Options)}}
    Options(**shared)  # the same checks as for blocc's own options
    kind = kind_of(method)
    # Some are called as options of blocc's own method are: gamma.
    numbers = (*kind.names, *kind.default_counts, *_own_names(kind))
    foreign = [one.name for one in fields(Options) if one.name in options and one.name not in (*_COMMON, *numbers)]
    own = {name: value for name, value in options.items() if name not in (*common, *foreign)}
    chosen = make_method(method, preset, **own)
    if foreign:
        known = ", ".join((*_COMMON, *numbers))
        meant = kind.meant.get(foreign[0])
        raise OptionError(
            f"{foreign[0]} is an option of method 'blocc'; those of {name_of(method)!r} are {known}"
            + (f": {meant} stands for it" if meant else "")
        )
    settings = MethodOptions(**{name: value for name, value in common.items() if value is not None})
    return MethodRun(problem.lifted, chosen, settings, callback, report)


def run_method(run: MethodRun, x: Float[NDArray, "n_x"]) -> Result:
    """From ``x`` to a judged result."""
    y = run.method.begin(run, x)
    require(run.flat, run.method, x, y, run.options.seed)
    run.last = (x, y)
    stop: StopReason | None = None
    try:
        end = run.method.drive(run, x, y)
        run.last = end
        run.record_last()
    except (Stop, KeyboardInterrupt) as reason:
        stop = reason.reason if isinstance(reason, Stop) else StopReason.INTERRUPTED
        end = run.last
        run.recording.close()  # what follows is no part of the run that may be continued
    return run.method.conclude(run, end, stop)
