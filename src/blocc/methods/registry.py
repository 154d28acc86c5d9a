"""The methods by name."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np

from blocc.errors import OptionError
from blocc.methods.aipod import Aipod, EAipod
from blocc.methods.base import Method
from blocc.methods.bic_gaffa import BicGaffa
from blocc.methods.bvfsm import Bvfsm
from blocc.methods.gam import Gam
from blocc.methods.lv_hba import LvHba
from blocc.methods.sflcb import Sflcb

#: blocc's own method is not in this room; every other one is.
METHODS: dict[str, type[Method]] = {kind.name: kind for kind in (LvHba, Gam, Bvfsm, Aipod, EAipod, BicGaffa, Sflcb)}
NAMES = ("blocc", *METHODS)


def make_method(name: str, preset: str = "default", **given: Any) -> Method:
    """A method with its numbers: those of a preset, those given by name, and automatic ones for the rest."""
    if name not in METHODS:
        raise OptionError(f"method must be one of {', '.join(map(repr, NAMES))}, got {name!r}")
    kind = METHODS[name]
    if preset != "default" and preset not in kind.presets:
        known = ", ".join(map(repr, ("default", *kind.presets)))
        raise OptionError(f"preset of method {name!r} must be one of {known}, got {preset!r}")
    named = kind.presets.get(preset, {})
    numbers = {key: value for key, value in named.items() if key not in kind.default_counts}
    counts = {key: int(value) for key, value in named.items() if key in kind.default_counts}
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
            known = ", ".join((*kind.names, *kind.default_counts))
            raise OptionError(f"unknown option {key!r} of method {name!r}; its numbers are {known}")
    return kind(numbers, counts)
