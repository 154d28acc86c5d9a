"""The published program for support vector machines, emulated: its data, its splits, and its loops of fixed steps.

It differs from the paper's text: the follower has b^2 as well, xi is eliminated, the penalised problem has half of the
follower's objective in it, c costs ||c||, and multipliers never fall below 1e-5. All splits advance in one compiled
loop: they differ in their numbers alone.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from blocc._lib.arrays import AnyArray, Array, Float, NDArray
from blocc._lib.compiled import compile_ahead
from blocc._lib.precision import double_precision
from reproduction.data_sets import data_file, load_data

GAMMA, ETA = 12.0, 0.01
EPOCHS = 80  #: figures are taken before the step of c of each, so that the last ones follow 79 steps
DUAL_STEPS = PRIMAL_STEPS = 20  #: T and T_y
#: Derivatives of a Lagrangian, or values of the constraints, in an epoch: of both inner problems.
DERIVATIVES = 2 * DUAL_STEPS * (PRIMAL_STEPS + 1)
#: Steps of y and of the multipliers, for the follower and for the penalised problem.
STEPS = ((1e-3, 1e-4), (1e-5, 1e-4))
STOP = 1e-4  #: of the slopes, in both inner loops
LEAST_MULTIPLIER, LEAST_MARGIN = 1e-5, 1e-4
DRAWN = (1.0, 5.0)  #: c at the start
TRAIN, VALIDATION = 500, 150  #: the rest is for testing


class Samples(NamedTuple):
    """One split: rows z l with a last entry l for b, so that ``rows @ (w, b)`` are margins."""

    train: Float[AnyArray, "*splits train weights"]
    validation: Float[AnyArray, "*splits validation weights"]
    test: Float[AnyArray, "*splits test weights"]


class Side(NamedTuple):
    """One of the two inner problems."""

    y: Float[AnyArray, "*splits weights"]
    multipliers: Float[AnyArray, "*splits train"]


class Figures(NamedTuple):
    """What is measured before the step of c of an epoch."""

    accuracy: Float[AnyArray, "*epochs"]  #: of yF on the test samples
    validation_loss: Float[AnyArray, "*epochs"]  #: of yF, for each sample, without the price of c
    test_loss: Float[AnyArray, "*epochs"]
    lower_value: Float[AnyArray, "*epochs"]  #: ||w||^2 / 2 at yg
    margins: Float[AnyArray, "*epochs train"]  #: c
    follower: Float[AnyArray, "*epochs weights"]  #: yg, as the follower's loop left it
    own: Float[AnyArray, "*epochs weights"]  #: yF


def read_as_published(path: Path) -> Float[NDArray, "samples columns"]:
    """Label and features, every row by position: where a line leaves out a feature, the next one takes its place."""
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    width = max(map(len, rows))
    table = np.zeros((len(rows), width))
    for place, row in enumerate(rows):
        table[place, : len(row)] = [float(row[0]), *(float(cell.partition(":")[2]) for cell in row[1:])]
    return table


def _table(dataset: str) -> Float[NDArray, "samples columns"]:
    """Label and features: from LIBSVM's file, or else as OpenML has them, in which the larger class is LIBSVM's 1."""
    if (path := data_file(dataset)) is not None:
        return read_as_published(path)
    data = load_data(dataset)
    larger = max(data.classes, key=lambda one: int((data.y == one).sum()))
    return np.column_stack([np.where(data.y == larger, 1.0, -1.0), data.X])


def expanded(table: Float[NDArray, "samples columns"]) -> Float[NDArray, "samples more"]:
    """The label, then 1, the features, their squares and the products of two: 8 features become 45."""
    features = table[:, 1:]
    first, second = np.triu_indices(features.shape[1], 1)
    ones = np.ones((len(table), 1))
    return np.hstack([table[:, :1], ones, features, features**2, features[:, first] * features[:, second]])


def shuffled(table: Float[NDArray, "samples columns"], count: int) -> list[Float[NDArray, "samples columns"]]:
    """The rows as each of ``count`` runs has them: every shuffle starts from the rows as the one before left them."""
    rows, found = table.copy(), []
    for seed in range(count):
        np.random.RandomState(seed).shuffle(rows)
        found.append(rows.copy())
    return found


def split_rows(rows: Float[NDArray, "samples columns"]) -> Samples:
    """500 samples to train, 150 to validate, the rest to test."""
    signs = np.where(rows[:, :1] > 0.0, 1.0, -1.0)
    signed = signs * np.hstack([rows[:, 1:], np.ones((len(rows), 1))])
    return Samples(signed[:TRAIN], signed[TRAIN : TRAIN + VALIDATION], signed[TRAIN + VALIDATION :])


def published_samples(dataset: str, count: int) -> Samples:
    """The first ``count`` splits of a data set, stacked; diabetes is expanded, fourclass is not."""
    table = _table(dataset)
    splits = [split_rows(rows) for rows in shuffled(expanded(table) if dataset == "diabetes" else table, count)]
    return Samples(*(np.stack(parts) for parts in zip(*splits, strict=True)))


def _inner(samples: Samples, c: Array, side: Side, penalised: bool) -> Side:
    """T steps of the multipliers, each after T_y steps of (w, b); both loops leave off where slopes vanish."""
    primal_step, dual_step = STEPS[penalised]

    def slope(y: Array, pull: Array) -> Array:
        if not penalised:
            return y - pull
        losses = jnp.exp(1.0 - samples.validation @ y)
        # The penalised problem has a quarter of ||w||^2 + b^2, where a half would be the follower's objective.
        return 0.5 * GAMMA * y - samples.validation.T @ losses - pull

    def dual(_: Array, carry: tuple[Side, Array]) -> tuple[Side, Array]:
        now, over = carry
        pull = jnp.asarray(samples.train.T @ now.multipliers)

        def primal(_: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            y, still = state
            gradient = slope(y, pull)
            still = still & (jnp.linalg.norm(gradient[:-1]) + jnp.abs(gradient[-1]) >= STOP)
            return jnp.where(still, y - primal_step * gradient, y), still

        y, _ = jax.lax.fori_loop(0, PRIMAL_STEPS, primal, (now.y, jnp.asarray(True)))
        violation = 1.0 - c - samples.train @ y
        over_now = over | (jnp.linalg.norm(violation) < STOP)
        moved = jnp.maximum(now.multipliers + dual_step * violation, LEAST_MULTIPLIER)
        following = Side(jnp.where(over, now.y, y), jnp.where(over_now, now.multipliers, moved))
        return following, over_now

    return jax.lax.fori_loop(0, DUAL_STEPS, dual, (side, jnp.asarray(False)))[0]


def _measure(samples: Samples, c: Array, follower: Side, penalised: Side) -> Figures:
    losses = [jnp.mean(jnp.exp(1.0 - part @ penalised.y)) for part in (samples.validation, samples.test)]
    accuracy = jnp.mean(jnp.where(samples.test @ penalised.y > 0.0, 1.0, 0.0))
    return Figures(accuracy, losses[0], losses[1], 0.5 * jnp.sum(follower.y[:-1] ** 2), c, follower.y, penalised.y)


def _run(samples: Samples, start: Float[Array, "train"], epochs: int) -> Figures:
    width = samples.train.shape[1]
    first = Side(jnp.zeros(width).at[-1].set(1.0), jnp.zeros(samples.train.shape[0]))

    def epoch(carry: tuple[Array, Side, Side], _: None) -> tuple[tuple[Array, Side, Side], Figures]:
        c, follower, penalised = carry
        figures = _measure(samples, c, follower, penalised)
        follower, penalised = (_inner(samples, c, side, k == 1) for k, side in enumerate((follower, penalised)))
        step = c / jnp.linalg.norm(c) + GAMMA * follower.multipliers - penalised.multipliers
        return (jnp.maximum(c - ETA * step, LEAST_MARGIN), follower, penalised), figures

    return jax.lax.scan(epoch, (start, first, first), None, length=epochs)[1]


def draw_margins(seed: int, count: int = TRAIN) -> Float[NDArray, "train"]:
    """The margins that a run starts from; the program seeds its splits, but not these."""
    return np.random.default_rng(seed).uniform(*DRAWN, count)


def run_published_svm(
    samples: Samples, starts: Float[NDArray, "splits train"], epochs: int = EPOCHS
) -> tuple[Figures, float]:
    """Every split at once: its figures epoch by epoch, and the seconds of the batch without compilation."""
    with double_precision():
        arguments = (jax.tree.map(jnp.asarray, samples), jnp.asarray(starts))
        advance, _ = compile_ahead(jax.vmap(lambda part, start: _run(part, start, epochs)), *arguments)
        began = time.perf_counter()
        found: Figures = jax.device_get(advance(*arguments))
        return found, time.perf_counter() - began
