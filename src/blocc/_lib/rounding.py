"""What double precision resolves, and the steps and tolerances that follow from it.

References: Nocedal and Wright, Numerical Optimization, 2nd edition, section 8.1 (steps of differences); Higham,
Accuracy and Stability of Numerical Algorithms, 2nd edition, chapters 2 and 3.
"""

from __future__ import annotations

import numpy as np

#: Relative rounding of one number, 2.2e-16.
EPS = float(np.finfo(float).eps)
#: What keeps a divisor from zero, and nothing else, 1.0e-292: quotients of anything up to 1/EPS remain finite.
TINY = float(np.finfo(float).tiny) / EPS
#: 1.5e-8. Step of a forward difference; what a residual that is quadratic in the error leaves unseen; the share of a
#: largest singular value below which a direction counts as null after one product of matrices.
HALF_DIGITS = EPS**0.5
#: 6.1e-6. Step of a central difference of values, accurate to its square.
CENTRAL_STEP = EPS ** (1.0 / 3.0)
#: 1.2e-4. Step of a second difference of values, and of a central one of gradients where curvature is what is wanted.
SECOND_STEP = EPS**0.25

# Accuracies, relative to the size of what is compared. Each is a few digits above what the one before it stands on.
#: What rounding leaves of a number out of long sums and solved systems: EPS times some thousand operations.
ROUNDED = 1e-12
#: What solvers are asked for where their answers count as exact.
ASKED = 1e-10
#: What two ways to the same number may differ by, and what an exact answer may violate.
EXACT = 1e-9
#: How well the place of an answer is known, where its value is exact: about half of the digits.
PLACED = 1e-7
#: Violations and gaps that are none to a user: a tenth of the default tolerance.
KEPT = 1e-6
