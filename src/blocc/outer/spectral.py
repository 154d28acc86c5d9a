"""Spectral projected gradient: non-monotone, safeguarded, for any X with a projection, one start or many at once.

Barzilai-Borwein steps with the Grippo-Lampariello-Lucidi line search (Birgin, Martinez, Raydan 2000). The method is a
pure state machine that asks for one evaluation at a time: :func:`advance` takes the state and the evaluation at
:func:`trial` and returns the next state. The same machine therefore runs one start from Python and hundreds of starts
inside one compiled loop. An unusable evaluation (the lower level has no answer there) shortens the step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Bool, Float, Int
from blocc._lib.rounding import TINY
from blocc.flat_problem import FlatProblem

_MEMORY = 10
_SUFFICIENT = 1e-4


class SpectralState(NamedTuple):
    """The accepted point, the trial direction, and the recent values the line search compares with."""

    x: Float[Array, "*starts n_x"]
    value: Float[Array, "*starts"]
    gradient: Float[Array, "*starts n_x"]
    direction: Float[Array, "*starts n_x"]
    step: Float[Array, "*starts"]
    recent: Float[Array, "*starts memory"]
    spectral: Float[Array, "*starts"]  #: Barzilai-Borwein step length
    stationarity: Float[Array, "*starts"]
    iteration: Int[Array, "*starts"]
    failed: Bool[Array, "*starts"]  #: the line search came to nothing
    accepted: Bool[Array, "*starts"]  #: whether the last evaluation became the new point


def start(x: Float[AnyArray, "n_x"]) -> SpectralState:
    """The state before anything was evaluated; its trial point is ``x`` itself."""
    at: Any = x
    number: Callable[[Any], Any] = np.asarray
    zeros, infinite = number(np.zeros(x.shape)), number(np.inf)
    return SpectralState(
        x=at,
        value=infinite,
        gradient=zeros,
        direction=zeros,
        step=number(1.0),
        recent=number(np.full(_MEMORY, -np.inf)),
        spectral=number(0.0),
        stationarity=infinite,
        iteration=number(-1),
        failed=number(False),
        accepted=number(False),
    )


def trial(state: SpectralState) -> Float[AnyArray, "n_x"]:
    """Where the machine wants the next evaluation."""
    return state.x + state.step * state.direction


def advance(
    flat: FlatProblem,
    state: SpectralState,
    value: Float[AnyArray, ""],
    gradient: Float[AnyArray, "n_x"],
    usable: Bool[AnyArray, ""],
) -> SpectralState:
    """Take in the evaluation at the trial point: accept it and turn, or shorten the step."""
    project = flat.x_set.project_flat
    first = state.iteration < 0
    slope = jnp.dot(state.gradient, state.direction)
    reference = jnp.max(state.recent)
    # Close to a minimiser differences of values drown in rounding; a slack of that size lets the gradient decide.
    rounding = 2e-15 * jnp.abs(jnp.where(jnp.isfinite(reference), reference, 0.0))
    descends = value <= reference + _SUFFICIENT * state.step * slope + rounding
    accepted = (first | descends) & usable

    x = jnp.where(accepted, trial(state), state.x)
    new_value = jnp.where(accepted, value, state.value)
    new_gradient = jnp.where(accepted, gradient, state.gradient)
    change, turn = x - state.x, new_gradient - state.gradient
    curvature = jnp.dot(change, turn)
    biggest = 1.0 / jnp.maximum(jnp.max(jnp.abs(new_gradient), initial=0.0), 1e-10)
    length = jnp.dot(change, change)
    spectral = jnp.where(curvature > TINY, length / jnp.maximum(curvature, TINY), 10.0 * state.spectral)
    # The first step moves x by at most a tenth; later ones by what the curvature along the last step says.
    spectral = jnp.where(first, 0.1 * biggest, jnp.clip(spectral, 1e-14, jnp.maximum(1e3 * biggest, 1e-12)))
    spectral = jnp.where(accepted, spectral, state.spectral)
    direction = jnp.where(accepted, project(x - spectral * new_gradient) - x, state.direction)
    # Quadratic interpolation along the direction, kept within a tenth and a half of the step that failed.
    rise = value - state.value - state.step * slope
    ratio = jnp.clip(-0.5 * slope * state.step / jnp.where(rise > 0, rise, jnp.inf), 0.1, 0.5)
    shorter = jnp.where(usable & jnp.isfinite(ratio), ratio, 0.25) * state.step
    size = 1.0 + jnp.max(jnp.abs(x), initial=0.0)
    step = jnp.where(accepted, 1.0, shorter)
    tiny = step * jnp.max(jnp.abs(direction), initial=0.0) < 1e-15 * size
    recent = jnp.where(accepted, state.recent.at[(state.iteration + 1) % _MEMORY].set(new_value), state.recent)
    left = x - project(x - new_gradient)
    measure = jnp.maximum(jnp.max(jnp.abs(left), initial=0.0), jnp.dot(new_gradient - left, left))
    return SpectralState(
        x=x,
        value=new_value,
        gradient=new_gradient,
        direction=direction,
        step=step,
        recent=recent,
        spectral=spectral,
        stationarity=jnp.where(accepted, measure, state.stationarity),
        iteration=state.iteration + accepted,
        failed=(first & ~accepted) | (~accepted & tiny),
        accepted=accepted,
    )
