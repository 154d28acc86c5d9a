"""B-stationarity where pieces are too many to enumerate: y = max(0, A x) at x = 0, against every ray of its cells."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from blocc import BilevelProblem, Box
from blocc._lib.precision import double_precision
from blocc.pieces.derivatives import model_of
from blocc.pieces.finish import Finish
from blocc.pieces.piece import Followers, Guess
from blocc.pieces.stationarity import falling_piece

COUNT = 20


@pytest.mark.parametrize("seed", range(8))
def test_all_pieces_that_meet_are_decided_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    normals, slope = rng.standard_normal((COUNT, 2)), rng.standard_normal(2)
    weights = rng.standard_normal(COUNT) + rng.choice([0.0, 0.4])  # multipliers alone do not tell
    problem = BilevelProblem(
        upper=lambda x, y: jnp.asarray(slope) @ x + jnp.asarray(weights) @ y,
        lower=lambda x, y: jnp.sum((y - jnp.asarray(normals) @ x) ** 2),
        x_set=Box(-1.0, 1.0, shape=2),
        y_set=Box(0.0, np.inf, shape=COUNT),
    )
    rays = np.concatenate([normals[:, ::-1] * [1.0, -1.0], normals[:, ::-1] * [-1.0, 1.0]])
    values = rays @ slope + np.maximum(rays @ normals.T, 0.0) @ weights  # linear in between: these decide
    falls = bool(values.min() < 0.0)
    with double_precision():
        x, y = np.zeros(2), np.zeros(COUNT)
        followers = Followers.of(problem.flat, x, y)
        assert followers is not None
        piece = followers.newton(x, y, np.arange(COUNT), np.zeros(COUNT), np.zeros(0))
        assert piece is not None
        held = falling_piece(followers, model_of(followers, piece), np.arange(COUNT))
        assert (held is not None) == falls
        finish = Finish(followers, lambda x: None, lambda: None, lambda at, slope: None)
        start = finish.start(x, y, Guess(np.arange(COUNT), np.zeros(COUNT), np.zeros(0)))
        assert start is not None
        end = finish.run(start)
    assert (end.best.upper < -1e-9) == falls
    if held is not None:  # the steepest fall is along a ray of the cell that it names
        across = np.setdiff1d(np.arange(COUNT), held)
        inside = (rays[:, None] * normals[None, held] if len(held) else rays[:, None]).sum(axis=-1)
        mine = (inside <= 1e-9).all(axis=1) & (rays @ normals[across].T >= -1e-9).all(axis=1)
        assert values[mine].min() < 0.0
