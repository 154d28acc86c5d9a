"""Settings that have a name: those of the BLOCC paper's text, and of each experiment that its program published.

``PUBLISHED`` holds the numbers; the toy, transport and SVM take theirs from there, so that a name means the same
everywhere. The toy's section of the paper names gamma = 5 alone; eta = 0.01 is a row of Table 5 and the setting of the
program, whose limit is T = 500. The inner iterations of "paper" (50) and of "toy" (100) are ours.

The program's inner loops stop by tests of their own for the toy and for the networks. For the toy
100 warm-started iterations leave less behind; for networks the inner solver stops on its residuals.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

from blocc.errors import OptionError
from blocc.inner.choice import PUBLISHED as TOY_INNER
from blocc.inner.maxmin import MaxMin
from blocc.options import Options


@dataclass(frozen=True)
class Published:
    """Algorithms 1 and 2 with the numbers of one experiment."""

    gamma: float
    step: float  #: eta
    iterations: int  #: T
    inner: MaxMin
    starts: int

    @property
    def options(self) -> dict[str, Any]:
        """For ``solve``, by name."""
        numbers = {"gamma": self.gamma, "step": self.step, "max_iterations": self.iterations}
        return {"outer": "pgd", "inner": self.inner, **numbers}


def _network(gamma: float, step: float, iterations: int, starts: int) -> Published:
    """The programs of the networks: steps of 0.01 and 0.4 on L_g, and those divided by gamma on L_F."""
    inner = MaxMin.single_loop(primal_step=(0.01, 0.01 / gamma), dual_step=(0.4, 0.4 / gamma))
    return Published(gamma, step, iterations, inner, starts)


#: "paper" is the text: gamma of the toy, eta of a row of Table 5, the single-loop version of Algorithm 2 with the steps
#: of its Remarks, which serve any problem whose gc is affine in y. The others are named after their experiments.
PUBLISHED: dict[str, Published] = {
    "paper": Published(5.0, 0.01, 500, MaxMin.single_loop(iterations=50), 200),
    "toy": Published(5.0, 0.01, 500, TOY_INNER, 200),
    "svm": Published(
        12.0,
        0.01,
        80,
        MaxMin(accelerated=False, iterations=20, steps_y=20, primal_step=(1e-3, 1e-5), dual_step=1e-4),
        10,
    ),
    "three": _network(4.0, 3.2e-6, 1_200_000, 1),
    "nine": _network(4.0, 1.6e-4, 200_000, 10),
    "seville": _network(3.0, 1.6e-4, 1_100_000, 1),
}
#: What ``solve`` and ``solve_many`` know by name.
PRESETS: dict[str, dict[str, Any]] = {"default": {}, **{name: one.options for name, one in PUBLISHED.items()}}


def check_preset(name: Any, known: Iterable[str]) -> None:
    """Refuse a preset that is not among those ``known``, which the message lists."""
    names = list(known)
    if not isinstance(name, str) or name not in names:
        raise OptionError(f"preset must be one of {', '.join(map(repr, names))}, got {name!r}")


def make_options(preset: str, given: dict[str, Any], options: Options | None = None) -> Options:
    """Options out of an object or a preset, and what was given by name; an unknown name lists the known ones."""
    check_preset(preset, PRESETS)
    if options is not None and not isinstance(options, Options):
        raise OptionError(f"options must be an Options object, got {type(options).__name__}; give x0 by name or first")
    if options is not None and preset != "default":
        raise OptionError("give either options or a preset, not both")
    known = {f.name for f in fields(Options)}
    unknown = sorted(set(given) - known)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}; the options are {', '.join(sorted(known))}")
    made = replace(options, **given) if options is not None else Options(**{**PRESETS[preset], **given})
    if given.get("step", Options.step) != Options.step and made.outer != "pgd":
        raise OptionError("step is of outer='pgd' alone: give that too, or leave out step; it is chosen automatically")
    return made
