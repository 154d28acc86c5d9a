"""The state of a search as plain arrays, for the checkpoint of a design.

Every start has its own entry: where it stood after its last stage, with the history up to there. A resumed design takes
over the starts that were finished, goes on with the one that was not, and ends with the same design, bit by bit: a
stage is a function of the state alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blocc.resume.recorded import RecordedMonitor
from blocc.transport.design.capacity_descent import Candidate
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.search import WHAT_IF, Search, SearchState

#: Rows of the table that shows what other gammas would have given: those of the homotopy, and the last one.
_MOST_ROWS = len(WHAT_IF) + 1


def keep_search(search: Search, index: int) -> None:
    """Keep where start number ``index`` stands now, if the run is kept at all."""
    if _is_kept(search):
        search.monitor.keep(f"start {index + 1}", _to_tree(search))


def restore_search(search: Search, index: int) -> bool:
    """Let a search go on where an earlier run left it; False where that run did not come so far."""
    if not _is_kept(search):
        return False
    own = _to_tree(search)
    found = search.monitor.begin(f"start {index + 1}", own)
    if found is own:
        return False
    search.state = _from_tree(found)
    return True


def _is_kept(search: Search) -> bool:
    return isinstance(search.monitor, RecordedMonitor) and search.monitor.recording.active


def _to_tree(search: Search) -> dict[str, Any]:
    """The state in arrays whose shapes depend on the network alone."""
    state, nowhere = search.state, np.zeros(search.model.network.n_links)
    table = np.full((_MOST_ROWS, len(WhatIf._fields)), np.nan)
    table[: len(state.what_if)] = np.reshape(state.what_if, (-1, table.shape[1]))
    missing = state.solution is None
    solution = search.model.capacities(nowhere, search.gamma) if missing else state.solution
    return {
        "links": np.stack([state.cost, state.prices, state.flow, state.penalised_flow, state.best.capacity]),
        "is_open": state.is_open,
        "provisional_flow": nowhere if state.provisional_flow is None else state.provisional_flow,
        "numbers": np.array(
            [state.best.budget_price, state.score, state.budget_price, state.provisional_utility, state.seconds]
        ),
        "counts": np.array([state.evaluations, state.stage, len(state.what_if)]),
        "has": np.array([not missing, state.provisional_flow is not None]),
        "what_if": table,
        "solution": solution,
    }


def _from_tree(tree: dict[str, Any]) -> SearchState:
    plain = {name: np.asarray(value) for name, value in tree.items() if name != "solution"}
    cost, prices, flow, penalised_flow, capacity = plain["links"]
    best_price, score, budget_price, provisional_utility, seconds = plain["numbers"].tolist()
    evaluations, stage, rows = plain["counts"].tolist()
    has_solution, has_provisional = plain["has"].tolist()
    return SearchState(
        is_open=plain["is_open"],
        cost=cost,
        prices=prices,
        flow=flow,
        penalised_flow=penalised_flow,
        best=Candidate(capacity, best_price),
        score=score,
        solution=tree["solution"] if has_solution else None,
        budget_price=budget_price,
        provisional_utility=provisional_utility,
        provisional_flow=plain["provisional_flow"] if has_provisional else None,
        evaluations=evaluations,
        stage=stage,
        what_if=[WhatIf(*row)._replace(links_built=int(row[4])) for row in plain["what_if"][:rows].tolist()],
        seconds=seconds,
    )
