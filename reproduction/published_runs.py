"""Rows out of the published scheme on the paper's networks: where each run ended, and the way there."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc.studies.study import Row
from blocc.transport.design.model import DesignModel
from blocc.transport.network.files import read_network
from blocc.transport.network.network import TransportNetwork
from reproduction.published_lv_hba import reported_utility, run_published_lv_hba
from reproduction.published_scheme import (
    COUNTED_CAPACITY,
    RULES,
    Run,
    counted_utility,
    run_published,
)

#: The authors call a run converged where its utility no longer changes by more than this.
SETTLED = 1e-3
NOTHING_BUILT, STILL_MOVING, AT_REST, CUT_OFF = "nothing built", "still moving", "settled", "inner loop did not end"


@functools.cache
def shared_model(network: str) -> DesignModel:
    """One model for all cells of a process, so that each of its functions compiles once."""
    return DesignModel(read_network(network))


def run_cell(
    gamma: float, eta: float, seed: int, steps: Mapping[str, int], network: str = "three", with_curves: bool = False
) -> Row:
    """The published scheme from one start, with its way if wanted; ``steps`` by eta, as JSON names it."""
    model, made = shared_model(network), int(steps[f"{eta:g}"])
    start = model.network.random_starts(1, seed)[0]
    seen = run_published(model.network, start, gamma, eta, made, rules=RULES[network])
    return _row(model, gamma, seen, made, with_curves)


def run_lv_hba_cells(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """LV-HBA's program from the starts of all cells; each has ``network``, ``seed`` and ``iterations``.

    Its utility is that of (a, f); ``utility_theta`` is that of its other copy of the shares, which it reports too.
    """
    model = shared_model(cells[0]["network"])
    network = model.network
    starts = np.stack([network.random_starts(1, cell["seed"])[0] for cell in cells])
    seen, seconds, _ = run_published_lv_hba(network, starts, int(cells[0]["iterations"]))
    rows: list[Row] = []
    for index in range(len(cells)):
        values = [reported_utility(network, state.capacity[index], state.share[index]) for state in seen]
        last = seen[-1]
        exact = model.capacities(np.asarray(last.capacity[index]), 1.0)
        curves = {"iteration": [int(state.iteration[index]) for state in seen], "upper_value": [-v for v in values]}
        rows.append(
            {
                "utility": values[-1],
                "utility_theta": reported_utility(network, last.capacity[index], last.theta[index]),
                "utility_exact": float(exact.utility),
                "ended": AT_REST if abs(values[-1] - values[-len(values) // 10]) <= SETTLED else STILL_MOVING,
                "iterations": int(last.iteration[index]),
                "seconds": seconds[-1] / len(cells),
                "curves": curves,
                "curve_seconds": [moment / len(cells) for moment in seconds],
            }
        )
    return rows


def _row(model: DesignModel, gamma: float, seen: Sequence[Run], steps: int, with_curves: bool) -> Row:
    network = model.network
    capacity = np.stack([run.capacity for run in seen])
    share = np.stack([[side.share for side in run.sides] for run in seen])
    flow = np.stack([[side.flow for side in run.sides] for run in seen])
    step = np.array([run.step for run in seen])
    utility, penalised = (
        np.array([counted_utility(network, *pair) for pair in zip(capacity, share[:, side], strict=True)])
        for side in (0, 1)
    )
    lower = [_lower_value(network, share[:, side], flow[:, side]) for side in (0, 1)]
    distance = np.linalg.norm(share[:, 1] - share[:, 0], axis=1)
    moving = np.flatnonzero(np.abs(utility - utility[-1]) > SETTLED)
    rest = int(moving[-1]) + 1 if len(moving) else 0
    exact = model.capacities(capacity[-1], gamma)
    row = {
        "utility": float(utility[-1]),
        "utility_best": float(utility.max()),
        "utility_penalised": float(penalised[-1]),
        "utility_exact": float(exact.utility),
        "distance": float(distance[-1]),
        "lower_gap": float(lower[1][-1] - lower[0][-1]),
        "ended": _ending(capacity[-1], utility, int(step[-1]), steps),
        "iterations": int(step[-1]),
        "iterations_to_rest": int(step[min(rest, len(step) - 1)]),
        "inner_iterations": seen[-1].inner,
        "seconds": seen[-1].seconds,
    }
    if with_curves:
        row["curves"] = {
            "iteration": step.tolist(),
            "upper_value": (-utility).tolist(),
            "upper_value_penalised": (-penalised).tolist(),
            "lower_gap": (lower[1] - lower[0]).tolist(),
            "distance": distance.tolist(),
        }
        row["curve_seconds"] = [run.seconds for run in seen]
    return row


def _ending(capacity: Float[NDArray, "links"], utility: Float[NDArray, "samples"], made: int, steps: int) -> str:
    if made < steps:
        return CUT_OFF
    if (capacity < COUNTED_CAPACITY).all():
        return NOTHING_BUILT
    last = utility[-max(2, len(utility) // 10) :]
    return AT_REST if float(np.ptp(last)) <= SETTLED else STILL_MOVING


def _lower_value(
    network: TransportNetwork, share: Float[NDArray, "samples markets"], flow: Float[NDArray, "samples links markets"]
) -> Float[NDArray, "samples"]:
    """g of shares and flows as the loops left them, row by row."""
    entropy = share * (np.log(share) - 1.0) + (1.0 - share) * (np.log1p(-share) - 1.0)
    times = network.time @ flow + network.alternative_time * (1.0 - share) + entropy
    return np.asarray(times @ network.demand)
