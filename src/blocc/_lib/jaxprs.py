"""Programs as JAX records them, told by what they hold.

Their types are in ``jax.extend``, and whoever imports that waits for Pallas as well.
"""

from __future__ import annotations

from typing import Any


def is_program(value: Any) -> bool:
    """Whether it is a recorded program, with or without its constants."""
    return hasattr(value, "eqns")


def is_closed_program(value: Any) -> bool:
    """Whether it is a recorded program together with its constants."""
    return is_program(value) and hasattr(value, "consts")


def is_literal(atom: Any) -> bool:
    """Whether what an operation is given is a number in the program itself, and not a variable."""
    return hasattr(atom, "val")
