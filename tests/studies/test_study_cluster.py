"""Dask clusters: workers are spawned, strangers are kept out by certificates, and whoever lets them in is told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

distributed = pytest.importorskip("distributed", reason="Dask is not installed")
import dask  # noqa: E402

import study_functions  # noqa: E402
from blocc import OptionError  # noqa: E402
from blocc.executors.cluster import DaskExecutor  # noqa: E402
from blocc.studies.engine import run_study  # noqa: E402
from blocc.studies.study import Study, StudyError  # noqa: E402

HELPERS = Path(__file__).parents[1]
NOISE = Study("noise", "study_functions:noise", {"size": [3, 4], "scale": [1.0]}, measured=["who", "seconds"])


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A certificate that vouches for itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl, which makes the certificates, is not installed")
    folder = tmp_path_factory.mktemp("tls")
    key, cert = folder / "key.pem", folder / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(cert)], check=True, capture_output=True)
    return {"ca-file": str(cert), "cert": str(cert), "key": str(key)}


def secured(certificate: dict[str, str]) -> distributed.Security:
    files = {
        f"tls_{role}_{part}": certificate[part]
        for role in ("client", "scheduler", "worker")
        for part in ("cert", "key")
    }
    return distributed.Security(tls_ca_file=certificate["ca-file"], require_encryption=True, **files)


@contextmanager
def cluster(folder: Path, certificate: dict[str, str]) -> Iterator[str]:
    """A scheduler and a worker that talk TLS, as one starts them by hand; the scheduler's address."""
    file = folder / "scheduler.json"
    common = ["--no-dashboard", *(word for name, path in certificate.items() for word in (f"--tls-{name}", path))]
    environment = {**os.environ, "PYTHONPATH": str(HELPERS)}
    scheduler = ["-m", "distributed.cli.dask_scheduler", "--host", "tls://127.0.0.1", "--port", "0", *common]
    worker = ["-m", "distributed.cli.dask_worker", "--nthreads", "1", "--no-nanny", "--host", "tls://127.0.0.1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    started = [subprocess.Popen([sys.executable, *scheduler, "--scheduler-file", str(file)], **quiet)]
    try:
        deadline = time.monotonic() + 60.0
        while not (file.exists() and file.read_text().strip().endswith("}")):
            assert time.monotonic() < deadline, "the scheduler has not started"
            time.sleep(0.05)
        address = json.loads(file.read_text())["address"]
        started.append(subprocess.Popen([sys.executable, *worker, *common, address], **quiet))
        yield address
    finally:
        for process in started:
            process.kill()
            process.wait(30)


@pytest.mark.slow
def test_certificates_are_asked_for(
    tmp_path: Path, certificate: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    with cluster(tmp_path, certificate) as address:
        assert address.startswith("tls://")
        with pytest.raises(StudyError, match="no Dask scheduler answers at tls://"):
            run_study(NOISE, tmp_path / "none.sqlite", executor=DaskExecutor(scheduler=address))
        executor = DaskExecutor(scheduler=address, security=secured(certificate))
        rows = run_study(NOISE, tmp_path / "store.sqlite", executor=executor)
        # The command line and run_study take the address alone; the files come from Dask's own configuration.
        configured = {
            "distributed.comm.tls.ca-file": certificate["ca-file"],
            "distributed.comm.tls.client.cert": certificate["cert"],
            "distributed.comm.tls.client.key": certificate["key"],
        }
        with dask.config.set(configured):
            again = run_study(NOISE, tmp_path / "again.sqlite", executor="dask", scheduler=address)
    plain = run_study(NOISE, tmp_path / "plain.sqlite")
    for found in (rows, again):
        assert [row["mean"] for row in found] == [row["mean"] for row in plain]
    assert "authentication" not in caplog.text


@pytest.mark.slow
def test_a_cluster_of_ones_own_with_certificates(
    tmp_path: Path, certificate: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    executor = DaskExecutor(workers=1, security=secured(certificate))
    rows = run_study(NOISE, tmp_path / "store.sqlite", executor=executor)
    assert [row["status"] for row in rows] == ["done", "done"]
    assert "authentication" not in caplog.text


@pytest.mark.slow
def test_workers_are_spawned_and_open_schedulers_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where Dask is configured to fork, which hangs once JAX has been used."""
    monkeypatch.setattr(study_functions, "INHERITED", True)
    study = Study("inherited", "study_functions:inherited")
    with dask.config.set({"distributed.worker.multiprocessing-method": "fork"}):
        rows = run_study(study, tmp_path / "dask.sqlite", executor="dask", workers=1)
    rows += run_study(study, tmp_path / "processes.sqlite", executor="processes", workers=1)
    assert [row["inherited"] for row in rows] == [False, False]
    assert run_study(study, tmp_path / "serial.sqlite")[0]["inherited"] is True
    assert "asks for no authentication: every user of this machine can run code" in caplog.text


def test_security_must_fit() -> None:
    with pytest.raises(OptionError, match=r"security must be a distributed\.Security, got dict"):
        DaskExecutor(workers=1, security={"tls_ca_file": "ca.pem"})
