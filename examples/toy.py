"""The toy example of the BLOCC paper, as a problem file.

    blocc solve examples/toy.py                    from the middle of [0, 3]
    blocc solve examples/toy.py --x0 0.3           from 0.3: another local minimum
    blocc solve examples/toy.py --starts 50        from 50 random starts; the best is reported

The leader picks x in [0, 3]. The follower would like y = 2x but is held back by y <= x, a constraint that the leader's
decision moves, so it answers y = x.
"""

import jax.numpy as jnp

from blocc import BilevelProblem, Box, Reals


def upper(x, y):
    """What the leader minimises; it depends on the follower's answer y."""
    return jnp.exp(2 - y) / (2 + jnp.cos(6 * x)) + jnp.log((4 * x - 2) ** 2 + 1) / 2


def lower(x, y):
    """What the follower minimises over y, once x is known."""
    return (y - 2 * x) ** 2


def inequality(x, y):
    """The coupled constraint: this must not be positive."""
    return y - x


problem = BilevelProblem(
    upper=upper,
    lower=lower,
    inequality=inequality,
    x_set=Box(0, 3),  # a bare number between 0 and 3
    y_set=Reals(),  # a bare number; the constraint alone bounds it
    name="toy",
)
