"""A program that runs a study and prints how far it is: for tests that kill it."""

from __future__ import annotations

import json
import sys

from blocc.studies.engine import Progress, run_study
from blocc.studies.study import Study


def say(progress: Progress) -> None:
    print(progress.done, flush=True)


if __name__ == "__main__":
    definition, store, options = sys.argv[1:]
    try:
        run_study(Study.from_json(definition), store, on_progress=say, **json.loads(options))
    except KeyboardInterrupt:
        sys.exit(130)
