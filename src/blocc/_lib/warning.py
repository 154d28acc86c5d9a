"""Warnings that name the line of the program that called this package, however deep in it they arise."""

from __future__ import annotations

import sys
import warnings


def warn_maker(message: str, category: type[Warning], module: str) -> None:
    """The same, where ``module``, or a copy of what it makes, was asked from outside this package; silent otherwise."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") in (module, "dataclasses", "copy"):
        frame = frame.f_back
    if frame.f_globals.get("__name__", "").partition(".")[0] != "blocc":
        warn_caller(message, category)


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn as if the call into this package had done it: the line that a user can change, and may filter by."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "blocc":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
