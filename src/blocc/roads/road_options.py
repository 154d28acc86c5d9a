"""What every search about roads can be told, checked; and which links it is about."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blocc._lib.arrays import Float, Int, NDArray
from blocc.errors import OptionError
from blocc.kit.arguments import check_positive, check_whole
from blocc.kit.records import Step
from blocc.resume.file import open_recording
from blocc.resume.recording import Recording
from blocc.roads.descents import Budget
from blocc.roads.equilibrium import PathFlows
from blocc.roads.network import RoadNetwork
from blocc.roads.question import Question
from blocc.roads.recorded_leader import question_fingerprint
from blocc.roads.search import Search, search


@dataclass(frozen=True)
class RoadOptions:
    """Options of every search about roads."""

    starts: int = 3  #: how many; the first begins with nothing, the next with all that is allowed, others at random
    seed: int = 0  #: of the random ones
    tolerance: float = 1e-6  #: relative to the objective, what decisions around the answer may still gain
    time_limit: float | None = None  #: seconds, after which the best answer so far comes back, assigned exactly
    report: Callable[[Step], None] | None = None  #: called with every evaluation
    checkpoint: str | Path | None = None  #: a file that the run keeps itself in
    resume: str | Path | None = None  #: such a file to go on from; the run keeps itself in it as well
    checkpoint_seconds: float = 5.0  #: between two times that it is written, at least

    def __post_init__(self) -> None:
        check_whole("starts", self.starts, 1)
        check_whole("seed", self.seed, 0)
        check_positive("tolerance", self.tolerance)
        check_positive("time_limit", self.time_limit, optional=True)

    def recording(self, question: Question, budget: Budget | None) -> Recording:
        """What the run is kept in; every mistake with the files is found out before any work."""
        settings = {"question": type(question).__name__, "seed": self.seed, "tolerance": self.tolerance}
        by = question_fingerprint(question, budget)
        return open_recording(by, settings, np.zeros(0), self.checkpoint, self.resume, self.checkpoint_seconds)

    @property
    def settings(self) -> dict[str, Any]:
        """Those that an answer names."""
        return {name: getattr(self, name) for name in ("starts", "seed", "tolerance", "time_limit")}


def searched(
    question: Question,
    starts: list[Float[NDArray, "n"]],
    budget: Budget | None,
    told: RoadOptions,
    *,
    is_convex: bool,
    known: PathFlows | None,
    began: float,
) -> tuple[Search, str]:
    """What a search found, and what the user has to know about its checkpoint.

    :param known: paths of drivers at the present decision
    :param began: when the user began to wait, by the clock
    """
    recording = told.recording(question, budget)
    with closing(recording):
        found = search(
            question,
            starts,
            budget=budget,
            is_convex=is_convex,
            time_limit=told.time_limit,
            tolerance=told.tolerance,
            report=told.report,
            recording=recording,
            known=known,
            began=began,
        )
    return found, recording.remark()


def chosen_links(network: RoadNetwork, given: Any) -> Int[NDArray, "n"]:
    """Positions of the links that may change."""
    try:
        items = list(given)
    except TypeError:
        raise OptionError(f"candidates must be a list of link ids, got {given!r}") from None
    if len(items) == network.n_links and all(isinstance(item, (bool, np.bool_)) for item in items):
        chosen = np.flatnonzero(np.asarray(items))
    else:
        place = {key: position for position, key in enumerate(network.link_ids)}
        unknown = [item for item in items if item not in place]
        if unknown:
            raise OptionError(f"candidates: there is no link {unknown[0]!r}; link_ids of the network name its links")
        chosen = np.array([place[item] for item in items], dtype=np.int64)
    if not len(chosen) or len(set(chosen.tolist())) < len(chosen):
        raise OptionError("candidates must name at least one link, and none twice")
    return chosen
