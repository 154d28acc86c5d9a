"""Many starts of Algorithm 1 in one compiled loop; each of them ends as it would alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from blocc.multi_result import near
from blocc.outer.tolerances import Endpoint
from blocc.penalty import no_upper_multipliers
from blocc.result import Result
from blocc.run.driver import Driver
from blocc.run.phase import Phase
from blocc.run.single import Run


def published_together(driver: Driver, points: np.ndarray) -> list[Result]:
    """The results of all starts. Those that end where an earlier one did share its verdict, which is made once.

    :raises Stop: where the run is stopped on the way
    """
    run, _ = driver.begin(Run, None)
    ends, evaluations = run.published(points, no_upper_multipliers(driver.flat))
    seconds = {name: value / len(points) for name, value in run.seconds().items()}
    results: list[Result] = []
    for index, (end, start) in enumerate(zip(ends, points, strict=True)):
        phase = Phase(run, None, run.conclude_at(end, *run.status_at(end)), end)
        first = next((k for k in range(index) if _together(run, ends[k], end)), index)
        if first < index:
            judged, own = results[first], phase.result.certificate  # residuals are those of its own x
            certificate = replace(own, exact=judged.certificate.exact)
            result = replace(phase.result, status=judged.status, message=judged.message, certificate=certificate)
        else:
            result = driver.finished(driver.judged(phase, start), [])
        counts = {**phase.result.counts, "evaluations": int(evaluations[index]), "merged": int(first < index)}
        results.append(replace(result, counts=counts, seconds=seconds, history=phase.result.history))
    return results


def _together(run: Run, one: Endpoint, other: Endpoint) -> bool:
    """Whether both have ended, and at the same point."""
    ended = all(bool(end.evaluation.usable) and run.tolerances.stationary(end) for end in (one, other))
    return ended and near(np.asarray(one.evaluation.x), np.asarray(other.evaluation.x))
