"""One run from its start to a judged result: units, phases, what to try next, status and certificate."""
