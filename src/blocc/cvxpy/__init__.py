"""Bilevel problems whose follower is written in CVXPY.

A leader's variable is a ``cp.Parameter`` of the follower, the follower a ``cp.Problem``; any cone that Clarabel knows
may be in it. Nothing is differentiated through a solver: the method needs the follower's optimal value, an answer and
its prices.
"""

from blocc.cvxpy.expressions import dual
from blocc.cvxpy.payments import payment
from blocc.cvxpy.problem import BilevelProblem
from blocc.cvxpy.run_options import RunOptions

__all__ = ["BilevelProblem", "RunOptions", "dual", "payment"]
