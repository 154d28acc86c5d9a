"""Families of easy problems in hostile units: shifted, multiplied, and measured in 1e-5 to 1e5."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from outside_case import Case, Model, Units, ball, box, build, reals
from outside_smooth import either, track_data, track_lower, track_upper

Generator = np.random.Generator
Base = tuple[Model, dict[str, Any], Callable[[Any], Any], dict[str, Any]]  # model, data, follower, rest of the case

TRACK = Model("track", track_upper, track_lower, box(-4.0, 4.0), reals())
FREE = Model("free track", track_upper, track_lower, reals(), reals())
CAP = Model(
    "cap", track_upper, track_lower, box(-4.0, 4.0), reals(), inequality=lambda m, x, y, d: y - d["s"] * x - d["k"]
)
CLIP = Model("clip", track_upper, track_lower, box(-4.0, 4.0), box(-1.0, 1.5))
DISC = Model(
    "disc",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
    ball([0.0, 0.0], 2.0),
    reals(2),
)
PAIR = Model(
    "pair",
    lambda m, x, y, d: m.sum((x - d["a"]) ** 2) + d["w"] * m.sum((y - d["b"]) ** 2),
    lambda m, x, y, d: m.sum((y - d["map"] @ x) ** 2),
    box(-3.0, 3.0, 2),
    reals(2),
    inequality=lambda m, x, y, d: m.stack([y[0] - d["k"], y[0] + y[1] - x[0] - d["k"] - 6.0]),
)


def track(generator: Generator) -> Base:
    """y = c x + e, x in an interval."""
    d = track_data(generator)
    return TRACK, d, lambda x: d["c"] * x + d["e"], {"start": either(generator, 0.5, generator.uniform(-4, 4))}


def free(generator: Generator) -> Base:
    """y = c x + e, x without bounds, started up to 30 away."""
    d = track_data(generator)
    rest = {"start": generator.uniform(-30, 30), "scan": (-8.0, 8.0)}
    return FREE, d, lambda x: d["c"] * x + d["e"], rest


def cap(generator: Generator) -> Base:
    """y = min(c x + e, s x + k)."""
    d = track_data(generator)
    d |= {"s": generator.uniform(-0.3, 0.3), "k": generator.uniform(-0.5, 1)}
    rest = {"start": either(generator, 0.5, generator.uniform(-4, 4))}
    return CAP, d, lambda x: min(d["c"] * x + d["e"], d["s"] * x + d["k"]), rest


def clip(generator: Generator) -> Base:
    """y = c x + e, clipped by the bounds of Y."""
    d = track_data(generator)
    rest = {"start": either(generator, 0.5, generator.uniform(-4, 4))}
    return CLIP, d, lambda x: min(max(d["c"] * x + d["e"], -1.0), 1.5), rest


def _two(generator: Generator) -> dict[str, Any]:
    return {
        "a": generator.uniform(-2, 2, 2),
        "b": generator.uniform(-2, 2, 2),
        "w": generator.uniform(0.2, 2),
        "map": np.eye(2) + generator.uniform(-0.4, 0.4, (2, 2)),
    }


def disc(generator: Generator) -> Base:
    """y = M x, x in a disc."""
    d = _two(generator)
    return DISC, d, lambda x: d["map"] @ x, {"start": either(generator, 0.5, generator.uniform(-1.4, 1.4, 2))}


def pair(generator: Generator) -> Base:
    """y = M x with y0 <= k, and a row that never binds where the answer is."""
    d = _two(generator) | {"k": generator.uniform(-0.5, 1.5)}

    def follower(x: Any) -> Any:
        y = d["map"] @ x
        y = np.array([min(y[0], d["k"]), y[1]])
        excess = y[0] + y[1] - x[0] - d["k"] - 6.0
        return y if excess <= 0 else _pair_bound(d, x)

    return PAIR, d, follower, {"start": either(generator, 0.5, generator.uniform(-2, 2, 2))}


def _pair_bound(d: dict[str, Any], x: Any) -> Any:
    """Return the projection of M x onto {y0 <= k, y0 + y1 <= t}: the second row, or both, bind."""
    y, total = d["map"] @ x, x[0] + d["k"] + 6.0
    onto = y - 0.5 * (y.sum() - total)
    return onto if onto[0] <= d["k"] else np.array([d["k"], total - d["k"]])


ALL = (track, free, cap, clip, disc, pair)


def _signed(generator: Generator, low: float, high: float) -> float:
    return float(10 ** generator.uniform(low, high) * generator.choice([-1, 1]))


def _case(generator: Generator, bases: tuple[Callable[[Generator], Base], ...], **units: Any) -> Case:
    model, d, follower, rest = bases[generator.integers(len(bases))](generator)
    return build(model, d, follower, Units(**units), **rest)


def shifted_upper(generator: Generator) -> Case:
    """f + 1e3 to 1e8, either sign."""
    return _case(generator, ALL, f_shift=_signed(generator, 3, 8))


def shifted_lower(generator: Generator) -> Case:
    """g + 1e3 to 1e8, either sign."""
    return _case(generator, ALL, g_shift=_signed(generator, 3, 8))


def shifted_both(generator: Generator) -> Case:
    """f and g shifted by 1e3 to 1e6."""
    return _case(generator, ALL, f_shift=_signed(generator, 3, 6), g_shift=_signed(generator, 3, 6))


def scaled_upper(generator: Generator) -> Case:
    """f times 1e-8 to 1e8."""
    return _case(generator, ALL, f_unit=10 ** generator.uniform(-8, 8))


def scaled_lower(generator: Generator) -> Case:
    """g times 1e-8 to 1e8."""
    return _case(generator, ALL, g_unit=10 ** generator.uniform(-8, 8))


def scaled_both(generator: Generator) -> Case:
    """f and g times 1e-6 to 1e6, each on its own, f shifted in proportion."""
    unit, shift = 10 ** generator.uniform(-6, 6), generator.uniform(-1e3, 1e3)
    return _case(generator, ALL, f_unit=unit, f_shift=unit * shift, g_unit=10 ** generator.uniform(-6, 6))


def scaled_row(generator: Generator) -> Case:
    """One constraint row times 1e-8 to 1e8."""
    return _case(generator, (cap,), row_units=10 ** generator.uniform(-8, 8))


def scaled_rows(generator: Generator) -> Case:
    """Two rows, each times 1e-6 to 1e6."""
    return _case(generator, (pair,), row_units=tuple((10 ** generator.uniform(-6, 6, 2)).tolist()))


def units_leader(generator: Generator) -> Case:
    """x in units of 1e-5 to 1e5, f and g in their own."""
    return _case(generator, (track, free, cap), x_unit=(float(generator.choice([1e-5, 1e-3, 1e2, 1e5])),))


def units_follower(generator: Generator) -> Case:
    """y in units of 1e-5 to 1e5; on the reals, and within bounds."""
    return _case(generator, (track, cap, clip), y_unit=(float(generator.choice([1e-5, 1e-2, 1e3, 1e5])),))


def units_mixed(generator: Generator) -> Case:
    """Two x and two y, each in a unit of its own."""
    x_unit = [(1e-3, 1e3), (1e4, 1.0), (1.0, 1e-4)][generator.integers(3)]
    return _case(generator, (pair,), x_unit=x_unit, y_unit=tuple((10 ** generator.uniform(-3, 3, 2)).tolist()))


def units_offset(generator: Generator) -> Case:
    """x and y about 1e2 to 1e5 away from 0, at a width of 1 (years, kelvins, coordinates)."""
    y_offset = _signed(generator, 2, 5)
    return _case(generator, (track, cap), x_offset=(float(generator.choice([-1e5, 1e3, 2e4])),), y_offset=(y_offset,))
