"""A follower held within far bounds: for a leader whose objective falls without limit in y, though not along y(x).

``f = -exp(y)`` under a follower with y(x) = x has a minimum over a bounded X, but f + gamma g has none for any gamma
where g is quadratic. Bounds that the response does not reach change neither the follower nor f(x, y(x)).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blocc.problem import BilevelProblem
from blocc.result import Result
from blocc.sets import Box

#: How far the bounds are from a response, in sizes of it: responses that go farther are found out by :func:`reaches`,
#: and exponentials of so much are still numbers.
REACH = 1e2


def bounded(problem: BilevelProblem, near: Result) -> BilevelProblem | None:
    """The problem with bounds around a response on all of the follower's variables; None if Y is no box or has them."""
    y, y_set = problem.y_set.ravel(near.y), problem.y_set
    if not (isinstance(y_set, Box) and np.isfinite(y).all()):
        return None
    low, high = y_set.bounds_flat()
    if np.isfinite(low).all() and np.isfinite(high).all():
        return None
    far = REACH * (1.0 + float(np.max(np.abs(y), initial=0.0)))
    lower, upper = np.maximum(low, y - far), np.minimum(high, y + far)
    return replace(problem, y_set=Box(y_set.unravel(lower), y_set.unravel(upper)))


def reaches(problem: BilevelProblem, held: BilevelProblem, found: Result) -> bool:
    """Whether a response lies at bounds that the problem itself does not have."""
    y = problem.y_set.ravel(found.y)
    own, added = problem.y_set.bounds_flat(), held.y_set.bounds_flat()
    gaps = [np.where(o == a, np.inf, np.abs(y - a)) for o, a in zip(own, added, strict=True)]
    return bool(min(float(np.min(gap, initial=np.inf)) for gap in gaps) < 0.5 * REACH)
