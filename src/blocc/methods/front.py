"""The way in: a method by name, its options sorted, its result."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from blocc.errors import OptionError
from blocc.methods.execute import Callback, MethodOptions, MethodRun, Report
from blocc.methods.registry import make_method
from blocc.options import Options
from blocc.problem import BilevelProblem

_COMMON = tuple(field.name for field in fields(MethodOptions))


def prepare(
    problem: BilevelProblem,
    method: str,
    preset: str,
    options: dict[str, Any],
    callback: Callback | None = None,
    report: Report | None = None,
) -> MethodRun:
    """Check everything that can be checked before the run."""
    common = {name: options[name] for name in _COMMON if name in options}
    Options(**common)  # the same checks as for blocc's own options
    own = {name: value for name, value in options.items() if name not in common}
    foreign = [field.name for field in fields(Options) if field.name in own]
    chosen = make_method(method, preset, **{name: value for name, value in own.items() if name not in foreign})
    if foreign:
        known = ", ".join((*_COMMON, *chosen.names, *chosen.default_counts))
        raise OptionError(f"{foreign[0]} is an option of method 'blocc'; those of {method!r} are {known}")
    settings = MethodOptions(**{name: value for name, value in common.items() if value is not None})
    return MethodRun(problem, chosen, settings, callback, report)
