"""From a question about roads to an answer with a proven gap: continuation, starts, the bound, probes, the result."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import numpy as np

from blocc._lib.arrays import Float, NDArray
from blocc._lib.compiled import clock
from blocc._lib.rounding import ASKED, TINY
from blocc.kit.records import Step
from blocc.outer.monitor import GRACE, Stop, StopReason, StopRequest, interruptible
from blocc.result import Status
from blocc.resume.recording import Recording
from blocc.roads.curvature import NEWTON_STAGES, goes_by_newton
from blocc.roads.descents import Budget, descend, within
from blocc.roads.equilibrium import MANY_PAIRS, PathFlows
from blocc.roads.far_moves import try_far_moves
from blocc.roads.leader import LAST_GAP, STOPPED_GAP, Leader, Reached
from blocc.roads.newton_descent import newton_descend
from blocc.roads.question import Question
from blocc.roads.recorded_leader import RecordedLeader
from blocc.roads.rounding import round_to_sizes, sizes_below

#: Probes around the answer: how many directions, and how far relative to the range of a decision.
PROBES, DISTANCES = 20, (1e-2, 1e-3)
#: With many pairs there are fewer; and a range counts up to so many units of a decision, so that they are nearby.
FEW_PROBES, NEARBY = 10, 10.0
#: With many pairs a probe is assigned to this relative gap first, and exactly where it is not worse by so much
#: relatively: many times what the rest of the gap changes.
ROUGH_GAP, WORSE = 1e-8, 1e-5
#: Seconds within which a run that was interrupted makes its last assignments.
CLOSING = 6.0
#: What a penalised value may hide for gamma to stop growing, relative to the tolerance.
HIDDEN = 0.1


class Start(NamedTuple):
    """One start and where it ended."""

    objective: float
    evaluations: int
    seconds: float


@dataclass
class Search:
    """What a run has found so far."""

    best: Reached | None = None
    bound: float = -np.inf
    bound_at: Float[NDArray, "n"] | None = None  #: the decision whose slopes prove the bound
    starts: list[Start] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    evaluations: int = 0
    improvement: float = np.nan  #: what probes around the answer still found; NaN where there were none
    stopped: StopReason | None = None


def search(
    question: Question,
    starts: list[Float[NDArray, "n"]],
    *,
    budget: Budget | None,
    is_convex: bool,
    time_limit: float | None,
    tolerance: float,
    report: Callable[[Step], None] | None,
    recording: Recording | None = None,
    known: PathFlows | None = None,
    began: float | None = None,
) -> Search:
    """Run every start, keep the best, and look around it.

    :param recording: of an earlier part of the run, and of this one
    :param known: paths of drivers at the present decision
    :param began: when the time limit began, by the clock; None: now
    """
    found = Search()
    recording, request = recording or Recording(), StopRequest(limit=time_limit)
    request.started = request.started if began is None else began

    def elapsed() -> float:
        return recording.time if recording.replaying else recording.earlier + request.elapsed()

    def check_stop(*_: object) -> None:
        if not recording.replaying:
            request.check()

    def look(gamma: float, x: Float[NDArray, "n"], value: float) -> None:
        step = Step(elapsed(), len(found.starts), gamma, value)
        found.steps.append(step)
        last.append(x)
        if report is not None and not recording.replaying:
            report(step)
        check_stop()

    leader, last = RecordedLeader(question, look, recording=recording), deque([question.present], maxlen=1)
    leader.follower = leader.penalised = known
    leader.check_stop = check_stop

    def all_starts() -> None:
        leader.exact(question.present, sloped=False)  # to leave everything as it is
        for start in starts:
            _from(leader, found, start, budget, is_convex, tolerance, elapsed)
        if question.sizes is None:
            try_far_moves(leader, budget, tolerance, partial(_onwards, leader, budget=budget, tolerance=tolerance))

    def closing() -> None:
        leader.on_step = lambda gamma, x, value: None
        if found.stopped is not None:  # in the middle of a descent, whose last point may be the best so far
            here = within(last[0].copy(), question, budget)
            if leader.best is None:
                leader.exact(question.present, STOPPED_GAP, sloped=False)
            leader.exact(here, STOPPED_GAP, sloped=False)
            if is_convex and found.bound_at is None:
                found.bound, found.bound_at = leader.bound(here, budget), here
        assert leader.best is not None
        at = leader.best.x
        if question.sizes is not None:
            at = sizes_below(question, at)
            if found.stopped is None:
                leader.on_step = look
                at = round_to_sizes(leader, leader.best.x, budget).x
                found.improvement = 0.0
        leader.best = leader.exact(at, LAST_GAP if found.stopped is None else STOPPED_GAP)
        if found.stopped is None and question.sizes is None:
            leader.on_step = check_stop
            _probe(leader, found, budget, tolerance)

    with interruptible(request):
        for part in (all_starts, closing):
            try:
                part()
            except (Stop, KeyboardInterrupt) as stop:  # Ctrl-C once more, before the first one was heeded, is one too
                found.stopped = stop.reason if isinstance(stop, Stop) else StopReason.INTERRUPTED
                leader.is_closing, leader.check_stop = True, lambda: None
                recording.stopped()
                leader.deadline = clock() + CLOSING
                if found.stopped is StopReason.TIME_LIMIT and time_limit is not None:
                    leader.deadline = request.started + time_limit + max(GRACE[0], GRACE[1] * time_limit)
        if leader.best is not None:
            gap = LAST_GAP if found.stopped is None else STOPPED_GAP
            found.best = leader.with_slope(leader.answered(leader.best, gap))
        found.evaluations = leader.evaluations
    return found


def _from(
    leader: Leader,
    found: Search,
    start: Float[NDArray, "n"],
    budget: Budget | None,
    is_convex: bool,
    tolerance: float,
    elapsed: Callable[[], float],
) -> None:
    """One start: gamma upwards. The first gammas lead every start to one place, so only the first start has them."""
    question, before, began = leader.question, leader.evaluations, elapsed()
    x = within(start, question, budget)
    assert leader.best is not None
    size, least, bend = question.size(leader.best.value) or 1.0, np.inf, 0.0
    by_newton = goes_by_newton(question)
    stages = NEWTON_STAGES if by_newton else tuple((gamma, question.accuracy(gamma)) for gamma in question.gammas)
    led = 1 if by_newton else 2
    for gamma, accuracy in stages[led if found.starts else 0 :] or stages[-1:]:
        if by_newton:
            function = partial(leader.bent, gamma=gamma)
            enough = min(accuracy, HIDDEN * tolerance) if np.isinf(gamma) else accuracy
            x, lowest, _ = newton_descend(function, x, question, budget, enough, size)
        else:
            value = partial(leader.penalty, gamma=gamma)
            x, lowest, bend = descend(value, x, question, budget, accuracy, size, bend)
        if gamma == 0.0 and is_convex:
            found.bound, found.bound_at = leader.bound(x, budget), x
        exact = lowest if np.isinf(gamma) and by_newton else leader.exact(x, sloped=False).value
        least = min(least, exact)
        if exact - lowest <= HIDDEN * tolerance * size:
            break  # nearby no value is below the penalised one: larger gammas have nothing to add
    found.starts.append(Start(least, leader.evaluations - before, elapsed() - began))


def _onwards(leader: Leader, x: Float[NDArray, "n"], *, budget: Budget | None, tolerance: float) -> None:
    """Descend from a point near an answer: by penalised values, which lead around kinks, and exactly from the best."""
    question = leader.question
    assert leader.best is not None
    size = question.size(leader.best.value) or 1.0
    by_newton = goes_by_newton(question)
    last = NEWTON_STAGES[-2:] if by_newton else tuple((gamma, question.accuracy(gamma)) for gamma in (100.0, np.inf))

    def descended(x: Float[NDArray, "n"], gamma: float, accuracy: float) -> Float[NDArray, "n"]:
        if by_newton:
            enough = min(accuracy, HIDDEN * tolerance)
            return newton_descend(partial(leader.bent, gamma=gamma), x, question, budget, enough, size)[0]
        return descend(partial(leader.penalty, gamma=gamma), x, question, budget, accuracy, size).x

    for gamma, accuracy in last:
        x = descended(x, gamma, accuracy)
    if not np.array_equal(x, leader.best.x):
        descended(leader.best.x, *last[-1])


def _probe(leader: Leader, found: Search, budget: Budget | None, tolerance: float) -> None:
    """Exact values around the answer; where one is better, it is adopted and the look goes on from there."""
    question, random = leader.question, np.random.default_rng(0)
    width = np.where(np.isfinite(question.upper), question.upper - question.lower, 1.0)
    width = np.minimum(width, NEARBY * question.units)
    count = (PROBES if question.network.n_pairs < MANY_PAIRS else FEW_PROBES) // 2
    for _ in range(3):
        assert leader.best is not None
        here = leader.best
        directions = np.eye(len(here.x)) if len(here.x) <= count else random.normal(size=(count, len(here.x)))
        for direction in (*directions, *-directions):
            for distance in DISTANCES:
                _look_at(leader, within(here.x + distance * width * direction, question, budget))
        downhill = -here.slope / (TINY + float(np.abs(here.slope).max()))
        for distance in 10.0 ** -np.arange(1.0, 7.0):
            _look_at(leader, within(here.x + distance * width * downhill, question, budget))
        leader.best = leader.with_slope(leader.best)
        found.improvement = max(0.0, here.value - leader.best.value)
        if found.improvement <= tolerance * question.size(here.value):
            return


def _look_at(leader: Leader, x: Float[NDArray, "n"]) -> None:
    """The exact value of one probe, unless less than that tells that it is worse."""
    question, best = leader.question, leader.best
    assert best is not None
    if question.network.n_pairs >= MANY_PAIRS:
        rough = leader.value_at(x, ROUGH_GAP).value
        if rough > best.value + WORSE * question.size(best.value):
            leader.evaluations += 1
            leader.on_step(np.inf, x, rough)
            return
    leader.exact(x, sloped=False)


def judged(found: Search, question: Question, tolerance: float) -> tuple[Status, str]:
    """How a search ended, in a word and a sentence."""
    if found.stopped is not None:
        status = {StopReason.TIME_LIMIT: Status.TIME_LIMIT, StopReason.CALLBACK: Status.STOPPED}
        return status.get(found.stopped, Status.INTERRUPTED), "Stopped early; this is the best answer so far."
    assert found.best is not None
    if found.best.answer.relative_gap > ASKED:
        gap = found.best.answer.relative_gap
        return (
            Status.STALLED,
            f"The drivers' equilibrium is reached only to a relative gap of {gap:.1e}; 1e-10 is wanted.",
        )
    if found.improvement > tolerance * question.size(found.best.value):
        return Status.STALLED, f"Nearby decisions are still better, by {found.improvement:.2g}."
    return Status.CONVERGED, "No decision nearby is better, and drivers are in equilibrium."
