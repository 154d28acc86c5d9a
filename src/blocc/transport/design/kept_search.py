"""The state of a search as plain arrays, for the checkpoint of a design.

Every start has its own entry: where it stood after its last stage, with the history up to there. A resumed design takes
over the starts that were finished, goes on with the one that was not, and ends with the same design, bit by bit: a
stage is a function of the state alone.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from blocc.outer.monitor import Monitor
from blocc.resume.recorded import RecordedMonitor
from blocc.transport.design.design_result import WhatIf
from blocc.transport.design.search import WHAT_IF, Search
from blocc.transport.design.search_state import SearchState

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


def is_begun(monitor: Monitor, index: int) -> bool:
    """Whether an earlier run has come to start number ``index``."""
    return isinstance(monitor, RecordedMonitor) and f"start {index + 1}" in monitor.recording.recorded.kept


def _is_kept(search: Search) -> bool:
    return isinstance(search.monitor, RecordedMonitor) and search.monitor.recording.active


def _to_tree(search: Search) -> dict[str, Any]:
    """The state in arrays whose shapes depend on the network alone."""
    state, nowhere = search.state, np.zeros(search.model.network.n_links)
    table = np.full((_MOST_ROWS, len(WhatIf._fields)), np.nan)
    table[: len(state.what_if)] = np.reshape(state.what_if, (-1, table.shape[1]))
    solution = search.model.capacities(nowhere, search.gamma) if state.solution is None else state.solution
    return vars(state) | {"what_if": table, "solution": solution, "is_solved": state.solution is not None}


def _from_tree(tree: dict[str, Any]) -> SearchState:
    solution, table = tree["solution"], np.asarray(tree["what_if"]).tolist()
    rest = {name: value for name, value in tree.items() if name not in ("solution", "what_if", "is_solved")}
    plain = jax.tree.map(lambda leaf: np.asarray(leaf) if np.ndim(leaf) else leaf.item(), rest)
    rows = [WhatIf(*row)._replace(links_built=int(row[4])) for row in table if np.isfinite(row[0])]
    return SearchState(**plain, what_if=rows, solution=solution if tree["is_solved"] else None)
