"""Errors a user can cause, all derived from ``BloccError``.

They are raised before any work starts and name the argument, what was wrong with it and what would be right.
"""

from __future__ import annotations


class BloccError(ValueError):
    """Base class of every error blocc raises on bad input."""


class ProblemError(BloccError):
    """The problem itself is not well formed: a function, a set or a shape does not fit."""


class OptionError(BloccError):
    """An option of a solver has an impossible value, or two options contradict each other."""


class SensitivityError(BloccError):
    """The answer has no derivatives in the data; the sentence says why."""


class InputError(BloccError):
    """A file or an argument of a command cannot be used."""


class ForkError(BloccError):
    """This process was forked from one that had used JAX, where nothing can be computed."""
