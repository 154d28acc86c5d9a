"""What a design will take: the formulas, and the refusal of what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocc._lib import memory
from blocc.errors import OptionError
from blocc.transport import design_network, read_network
from blocc.transport.design import forecast as module
from blocc.transport.design.forecast import check_memory, forecast
from blocc.transport.network.generators import city_network, grid_network


def test_paths_take_less_where_networks_are_large() -> None:
    small, large = city_network(8, 30, 120), grid_network(10, 10)
    for network in (small, large):
        dense, paths = forecast(network, "dense"), forecast(network, "paths")
        assert (dense.engine, paths.engine) == ("dense", "paths")
        assert min(dense.memory, paths.memory, dense.seconds, paths.seconds) > 0.0
    assert forecast(large, "dense").memory > forecast(large, "paths").memory
    assert forecast(large).engine == "paths"
    assert forecast(large).seconds > forecast(small).seconds


def test_an_accelerator_is_used_where_it_is_the_quicker_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches take 3 ms however small a network is; two threads take 0.2 ms for 25 nodes and 3.5 ms for 100."""
    pytest.importorskip("numba")
    monkeypatch.setattr(module, "thread_count", lambda: 16)
    sizes = {"small": grid_network(5, 5), "middle": grid_network(8, 8), "large": grid_network(10, 10)}
    for is_there in (False, True):
        monkeypatch.setattr(module, "is_on_accelerator", lambda is_there=is_there: is_there)
        chosen = {name: module.chosen_engine(network) for name, network in sizes.items()}
        assert chosen == {"small": "dense", "middle": "paths", "large": "mixed" if is_there else "paths"}
        assert {module.chosen_engine(network, "mixed") for network in sizes.values()} == {"mixed"}  # asked for
        if is_there:
            for network in sizes.values():
                quickest = min(("paths", "mixed"), key=lambda engine: forecast(network, engine).seconds)
                assert module.chosen_engine(network) in ("dense", quickest)
    # Evaluations as they were measured, in seconds.
    assert module.seconds_on_paths(sizes["small"]) < 5e-4
    assert 2e-3 < module.seconds_on_paths(sizes["large"]) < 4e-3


def test_what_does_not_fit_is_refused_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    network = read_network("three")
    check_memory(network)
    monkeypatch.setattr(module, "available_memory", lambda: 1e8)
    with pytest.raises(OptionError, match=r"needs about 0\.4 GB of memory with engine='dense', and 0\.1 GB are free"):
        design_network(network, starts=1)


def test_available_memory(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    info, limit, used = (tmp_path / name for name in ("info", "limit", "used"))
    info.write_text("MemTotal: 100 kB\nMemAvailable: 50 kB\n")
    for name, path in (("_INFO", info), ("_LIMIT", limit), ("_USED", used)):
        monkeypatch.setattr(memory, name, str(path))
    assert memory.available_memory() == 50 * 1024
    limit.write_text("max\n")
    used.write_text("1000\n")
    assert memory.available_memory() == 50 * 1024
    limit.write_text("5000\n")
    assert memory.available_memory() == 4000
    info.unlink()
    assert memory.available_memory() == 4000
