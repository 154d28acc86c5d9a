"""What ``blocc info`` tells: versions, devices and threads, for reports of errors and for measurements.

Nothing here needs typer or rich.
"""

from __future__ import annotations

import json
import os
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import jax

from blocc._lib.threads import thread_count
from blocc.run.conclude import versions

#: What the extras bring, in the order of pyproject.toml.
OPTIONAL = (
    *("jaxlib", "qdldl", "threadpoolctl", "typer", "rich", "matplotlib", "jinja2", "h5py", "scikit-learn"),
    *("numba", "cvxpy", "clarabel", "highspy", "dask", "distributed", "loky"),
)


def gather() -> dict[str, Any]:
    """Everything that the command tells, as plain values."""

    def installed(name: str) -> str:
        try:
            return version(name)
        except PackageNotFoundError:
            return "not installed"

    return {
        "versions": versions() | {name: installed(name) for name in OPTIONAL},
        "devices": [f"{device.platform}:{device.id} {device.device_kind}" for device in jax.devices()],
        "threads": thread_count(),
        "cores": os.cpu_count(),
        "settings": {name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_", "OMP_NUM"))},
    }


def print_info(as_json: bool = False) -> None:
    """Tell versions, devices and threads: what a report of an error, or a measurement, should name."""
    facts = gather()
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    for name, value in facts["versions"].items():
        print(f"{name:<14}  {value}")
    for device in facts["devices"]:
        print(f"{'device':<14}  {device}")
    print(f"{'threads':<14}  {facts['threads']} of {facts['cores']} cores may be used")
    for name, value in facts["settings"].items():
        print(f"{name}  {value}")
