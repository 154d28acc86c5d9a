"""Forks of a process that has used JAX: an error with a name, from every front door, and never a process that hangs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

#: The alarm ends a child that hangs: then its signal, and no "fork", is what the test reads.
PROGRAM = """
import os, signal
import numpy as np
import blocc
from blocc.errors import ForkError
from blocc.svm import BilevelSVC
from blocc.transport import design_network, read_network

def toy():
    return blocc.BilevelProblem(
        upper=lambda x, y: (x - 1.0) ** 2 + y**2, lower=lambda x, y: (y - x) ** 2,
        x_set=blocc.Box(0.0, 3.0), y_set=blocc.Reals(),
    )

def ends(work):
    child = os.fork()
    if not child:
        signal.alarm(30)
        try:
            work()
            print("computed", flush=True)
        except ForkError as error:
            print("refused" if "spawn" in str(error) else error, flush=True)
        os._exit(0)
    code = os.waitpid(child, 0)[1]
    if code:
        print("ended by", code, flush=True)

early, network = toy(), read_network("three")
ends(lambda: blocc.solve(early))  # JAX has traced, and has no threads yet
known = blocc.solve(early)
doors = [
    lambda: blocc.solve(early), lambda: blocc.solve(toy(), 1.0), lambda: blocc.solve_many(early, starts=2),
    lambda: blocc.solve(early, method="gam"), lambda: blocc.check(early), lambda: blocc.verify(early, known),
    lambda: blocc.solve_global(early), lambda: blocc.lower_level(early, 1.0),
    lambda: BilevelSVC().fit(np.eye(8), np.arange(8) % 2),
    lambda: design_network(network),
]
for door in doors:
    ends(door)
blocc.solve(early)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no forks")
def test_forks_are_refused_where_they_would_hang() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:-1] == ["computed"] + ["refused"] * 10, done.stderr
