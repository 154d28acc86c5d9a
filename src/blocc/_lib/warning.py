"""Warnings that name the line of the program that called this package, however deep in it they arise."""

from __future__ import annotations

import sys
import warnings


def warn_caller(message: str, category: type[Warning]) -> None:
    """Warn as if the call into this package had done it: the line that a user can change, and may filter by."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "blocc":
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
