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
    RunState,
    counted_utility,
    is_large,
    run_published,
)

#: The authors call a run converged where its utility no longer changes by more than this.
SETTLED = 1e-3
NOTHING_BUILT, STILL_MOVING, AT_REST, CUT_OFF = "nothing built", "still moving", "settled", "inner loop did not end"


@functools.cache
def shared_model(network: str) -> DesignModel:
    """One model for all cells of a process, so that each of its functions compiles once."""
    return DesignModel(read_network(network))


def run_cells(cells: Sequence[Mapping[str, Any]]) -> list[Row]:
    """All cells in one batch; each has ``gamma``, ``eta``, ``seed``, and ``steps`` by eta, as JSON names it.

    ``network`` is that of three nodes where a cell names none. On a large one the cells run one after the other. A cell
    with ``with_curves`` true also returns its way, for pictures.
    """
    name = cells[0].get("network", "three")
    model = shared_model(name)
    network = model.network
    if is_large(network) and len(cells) > 1:
        return [row for cell in cells for row in run_cells([cell])]
    steps = max(int(cell["steps"][f"{cell['eta']:g}"]) for cell in cells)
    starts = np.stack([network.random_starts(1, cell["seed"])[0] for cell in cells])
    gammas, etas = (np.array([cell[name] for cell in cells], dtype=np.float64) for name in ("gamma", "eta"))
    seen, seconds, _ = run_published(network, starts, gammas, etas, steps, rules=RULES[name])
    return [_row(model, cell, index, seen, seconds, steps, len(cells)) for index, cell in enumerate(cells)]


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


def _row(
    model: DesignModel,
    cell: Mapping[str, Any],
    index: int,
    seen: Sequence[RunState],
    seconds: Sequence[float],
    steps: int,
    runs: int,
) -> Row:
    network = model.network
    capacity = np.stack([state.capacity[index] for state in seen])
    share = np.stack([state.sides.share[index] for state in seen])
    flow = np.stack([state.sides.flow[index] for state in seen])
    step = np.array([int(state.step[index]) for state in seen])
    utility, penalised = (
        np.array([counted_utility(network, *pair) for pair in zip(capacity, share[:, side], strict=True)])
        for side in (0, 1)
    )
    lower = [_lower_value(network, share[:, side], flow[:, side]) for side in (0, 1)]
    distance = np.linalg.norm(share[:, 1] - share[:, 0], axis=1)
    moving = np.flatnonzero(np.abs(utility - utility[-1]) > SETTLED)
    rest = int(moving[-1]) + 1 if len(moving) else 0
    exact = model.capacities(capacity[-1], float(cell["gamma"]))
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
        "inner_iterations": int(seen[-1].inner[index]),
        "seconds": seconds[-1] / runs,
    }
    if cell.get("with_curves"):
        row["curves"] = {
            "iteration": step.tolist(),
            "upper_value": (-utility).tolist(),
            "upper_value_penalised": (-penalised).tolist(),
            "lower_gap": (lower[1] - lower[0]).tolist(),
            "distance": distance.tolist(),
        }
        row["curve_seconds"] = [moment / runs for moment in seconds]
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
