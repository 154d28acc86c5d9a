"""The numbers of the finish, each with its reason."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blocc.local.derivatives import DENSE

_EPS = float(np.finfo(float).eps)


@dataclass(frozen=True)
class Settings:
    """Ratios are relative to natural sizes (:mod:`blocc.local.scales`)."""

    #: Variables and rows up to which there are pieces, by dense matrices.
    largest: int = DENSE
    #: Reciprocal condition number of a balanced KKT matrix from which on it is regular. Newton's method loses as many
    #: digits as this has, so that the square root of the precision leaves half of them.
    regular: float = _EPS**0.5
    #: Newton steps on one active set: quadratic convergence from a tenth takes four, from afar some more.
    newton: int = 12
    #: A step that is smaller, relative to the variables, is rounding.
    rounding: float = 1e3 * _EPS
    #: Slack up to which a row of a solver's answer is a candidate for the active set: the root of the accuracy of an
    #: interior point (a row with neither slack nor multiplier is left by the root of the complementarity).
    touched: float = 1e-5
    #: Violations of a piece's rows, or of signs of multipliers, up to which the piece is the truth.
    true: float = 1e-10
    #: Changes of the active set in one response. Primal-dual active sets settle in a handful (Hintermueller, Ito and
    #: Kunisch 2002); others are left to an oracle.
    changes: int = 12
    #: Piecewise quadratic programs in one finish.
    iterations: int = 100
    #: Share of the promised decrease that is asked for, and those at which the trust region shrinks and grows (Conn,
    #: Gould and Toint, Trust-Region Methods, 2000, section 6.1).
    accept: float = 1e-4
    poor: float = 0.25
    good: float = 0.75
    #: First radius of the trust region, in sizes of x, and the one at which a jump is met and nothing is left to try.
    radius: float = 1.0
    smallest_radius: float = 1e-9
    #: Slack and multiplier of a biactive row, and violations of G that are rounding: the root of the precision.
    biactive: float = _EPS**0.5
    admissible: float = _EPS**0.5
    #: Multipliers of the wrong sign up to this share of the gradient are rounding, which a regular system magnifies.
    sign: float = _EPS**0.5
    #: Sizes of x at which f is looked at where its model bends down at a stationary point.
    probes: tuple[float, ...] = (0.1, 0.01, 0.001)
    #: Sizes of x beyond which f is taken to fall for ever.
    farthest: float = 1e6
    #: Differences along which second derivatives are differenced: the third root of the precision, for central ones.
    difference: float = _EPS ** (1.0 / 3.0)


SETTINGS = Settings()
