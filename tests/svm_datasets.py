"""Data sets of the published experiment, where they lie beside the repository."""

from __future__ import annotations

from pathlib import Path

import pytest

from blocc.svm.data.samples import LabelledData, read_libsvm

FOLDER = Path(__file__).resolve().parents[1].parent / "shared" / "datasets"


def shared_dataset(name: str) -> LabelledData:
    """``diabetes`` or ``fourclass`` as LIBSVM distributes them; skips the test where the file is missing."""
    path = FOLDER / f"{name}.libsvm"
    if not path.is_file():
        pytest.skip(f"needs the LIBSVM file {name}.libsvm in shared/datasets beside the repository")
    return read_libsvm(path)
