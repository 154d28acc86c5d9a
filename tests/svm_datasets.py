"""Data sets of the published experiment, where the clone has their files; tests fetch nothing."""

from __future__ import annotations

import pytest

from blocc.svm.data.samples import LabelledData, read_libsvm
from reproduction.data_sets import data_file


def shared_dataset(name: str) -> LabelledData:
    """``diabetes`` or ``fourclass`` as LIBSVM distributes them; skips the test where the file is missing."""
    path = data_file(name)
    if path is None:
        pytest.skip(f"needs the LIBSVM file {name}.libsvm in $BLOCC_DATA or in the folder data of the clone")
    return read_libsvm(path)
