"""Intervals and verdicts: what few or noisy samples must leave open."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from reproduction.verdicts import FEWEST, differences, exceeds, falls, interval, within


def test_the_interval_is_students() -> None:
    samples = np.random.default_rng(0).standard_normal(12)
    found = interval(samples)
    low, high = scipy.stats.t.interval(0.95, 11, loc=samples.mean(), scale=scipy.stats.sem(samples))
    assert (found.low, found.high) == (pytest.approx(low), pytest.approx(high))
    assert interval([1.0]).half == np.inf
    assert interval([]).samples == 0


def test_few_or_noisy_samples_cannot_tell() -> None:
    assert exceeds([1.0] * (FEWEST - 1)) is None
    assert exceeds([1.0] * FEWEST) is True
    assert exceeds([-1.0] * FEWEST) is False
    assert exceeds([-1.0, 1.2, -0.9, 1.1, 0.3, -0.5]) is None
    assert exceeds([0.0] * FEWEST) is False
    assert within([0.01, 0.012, 0.009, 0.011, 0.01], 0.02) is True
    assert within([0.5, 0.51, 0.49, 0.5, 0.5], 0.02) is False
    assert within([0.03, -0.01, 0.02, 0.05, -0.02], 0.02) is None


def rows_of(by_gamma: dict[float, list[float]]) -> list[dict]:
    return [
        {"gamma": gamma, "seed": seed, "value": value}
        for gamma, values in by_gamma.items()
        for seed, value in enumerate(values)
    ]


def test_differences_are_taken_seed_by_seed() -> None:
    one = [{"seed": 1, "a": 3.0}, {"seed": 0, "a": 1.0}, {"seed": 2, "a": None}]
    other = [{"seed": 0, "a": 0.5}, {"seed": 1, "a": 1.0}]
    np.testing.assert_array_equal(differences(one, other, "a"), [2.0, 0.5])


def test_a_trend_needs_every_step_and_the_whole() -> None:
    noise = np.random.default_rng(1).standard_normal(8)
    # Noise that is the same for a seed does not hide a trend on the same seeds.
    falling = rows_of({gamma: list(noise + 1.0 / gamma) for gamma in (1.0, 2.0, 4.0)})
    assert falls(falling, "gamma", "value") is True
    assert falls(falling, "gamma", "value", sign=-1.0) is False
    bump = rows_of({1.0: [3.0] * 6, 2.0: [5.0] * 6, 4.0: [1.0] * 6})
    assert falls(bump, "gamma", "value") is False
    assert falls(rows_of({1.0: [3.0, 2.0], 2.0: [1.0, 0.0]}), "gamma", "value") is None
    assert falls(falling[:8], "gamma", "value") is None
