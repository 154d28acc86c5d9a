"""Is a stationary point a minimum? Probes around it, and short descents from points beside it.

At a smooth saddle a lower point is soon met. At a kink or a boundary every direction that leaves the surface on which x
lies goes up, and what bends down on it does not show: there the probes move along the surface, and descend a little, so
that a curved one is found again.
"""

from __future__ import annotations

import numpy as np
import scipy

from blocc._lib.arrays import AnyArray
from blocc.inner.choice import DENSE_FIRST
from blocc.outer.descent import follow_gradients
from blocc.outer.evaluator import Evaluator
from blocc.outer.nonsmooth.gradient_sampling import neighbourhood
from blocc.outer.tolerances import Endpoint, Stage
from blocc.penalty import Evaluation, Leader

_NEAR, _FAR = 1e-3, 1e-2  #: distances of the probes, relative to the size of x
_STEPS = 10  #: of a short descent
_MOST_SAMPLES = 40


def escape(evaluator: Evaluator, end: Endpoint, leader: Leader, accuracy: float, tolerance: float) -> Evaluation | None:
    """A point lower than a stationary one, if there is one beside it: then that one is a saddle or a maximum."""
    e = end.evaluation
    gamma, size = float(e.gamma), 1.0 + float(np.max(np.abs(e.x), initial=0.0))
    scale = 1.0 + 1e-6 * abs(e.upper_value)  # rounding of a large constant in f; anything more would hide descents
    generator = np.random.default_rng(evaluator.seed)
    for radius in (_NEAR, _NEAR, _FAR):
        offset = radius * size * generator.uniform(-1.0, 1.0, e.x.size)
        for point in (evaluator.project(e.x + offset), evaluator.project(e.x - offset)):
            found = evaluator(point, gamma, leader, accuracy)
            if found.usable and float(found.value) < float(e.value) - 1e-8 * scale:
                return found
    flat = evaluator.flat
    if end.radius == 0.0 and flat.n_y + flat.n_inequality + flat.n_equality > DENSE_FIRST:
        return None  # descents would cost as much as the run
    stage = Stage(leader, accuracy, tolerance, _STEPS)
    for surface in _surfaces(evaluator, end, stage):
        if surface.shape[1] == 0:
            continue
        offset = surface @ generator.standard_normal(surface.shape[1])
        offset *= _FAR * size / max(float(np.linalg.norm(offset)), 1e-300)
        for side in (offset, -offset):
            beside = _beside(evaluator, e.x + side, gamma, stage)
            if beside is None:
                continue
            reached = follow_gradients(evaluator, beside, stage).evaluation
            if float(reached.value) < float(e.value) - 1e-7 * scale:
                return reached
    return None


def _surfaces(evaluator: Evaluator, end: Endpoint, stage: Stage) -> list[np.ndarray]:
    """Bases of the directions to try: all or, at a kink or boundary, those along it, with and without the edge of X."""
    e = end.evaluation
    if end.radius == 0.0:
        return [np.eye(e.x.size)]
    samples = min(2 * e.x.size + 2, _MOST_SAMPLES)
    generator = np.random.default_rng(evaluator.seed)
    around = neighbourhood(evaluator, e, stage, end.radius, samples, generator)
    gradients = np.asarray(around.gradients)
    scale = max(float(np.max(np.linalg.norm(gradients, axis=1))), 1e-300)
    differences = (gradients[1:] - gradients[0]) / scale
    kink = differences[np.linalg.norm(differences, axis=1) > 1e-3]
    boundaries = np.reshape(around.boundaries, (-1, e.x.size))
    bases = []
    for edges in (around.edges, around.edges[:0]):
        rows = np.concatenate([kink, boundaries, edges])
        bases.append(scipy.linalg.null_space(rows, rcond=1e-3) if len(rows) else np.eye(e.x.size))
    return bases if len(around.edges) else bases[:1] * 2


def _beside(evaluator: Evaluator, point: AnyArray, gamma: float, stage: Stage) -> Evaluation | None:
    """A usable evaluation at the point of X nearest to this one, or before the boundary that it lies behind."""
    point = evaluator.project(point)
    for _ in range(3):
        found = evaluator(point, gamma, stage.leader, stage.inner_tolerance)
        if found.usable:
            return found
        boundary = evaluator.boundary(point)
        if boundary is None:
            return None
        point = evaluator.project(point - (1.01 * boundary.depth + 1e-8) * boundary.normal)
    return None
