"""Where data sets are.

NAME.libsvm is looked for in $BLOCC_DATA, else in the folder data/ of the clone; else diabetes comes from OpenML through
scikit-learn.
"""

from __future__ import annotations

import os
from pathlib import Path

from blocc.errors import BloccError, InputError
from blocc.svm.data.samples import LabelledData, read_libsvm, read_samples

FOLDER = "BLOCC_DATA"  #: the environment's name of the folder
CLONE = Path(__file__).resolve().parents[1]
ON_OPENML = ("diabetes",)


def data_folder() -> Path:
    """The folder that is looked in."""
    return Path(os.environ.get(FOLDER) or CLONE / "data").resolve()


def data_file(name: str) -> Path | None:
    """The LIBSVM file of a data set, where there is one."""
    path = data_folder() / f"{name}.libsvm"
    return path if path.is_file() else None


def is_offered(name: str) -> bool:
    """Whether a data set may be had, without asking OpenML for it."""
    return data_file(name) is not None or name in ON_OPENML


def load_data(name: str) -> LabelledData:
    """The samples of a data set; an :class:`InputError` says in a sentence why there are none."""
    if (path := data_file(name)) is not None:
        return read_libsvm(path)
    cure = f"put LIBSVM's file at {data_folder() / f'{name}.libsvm'}, or name another folder in ${FOLDER}"
    if name not in ON_OPENML:
        raise InputError(f"there is no data set {name}; {cure}")
    try:
        return read_samples(name)
    except BloccError as error:
        raise InputError(f"there is no data set {name} ({str(error).partition(';')[0]}); {cure}") from error


def why_missing(name: str) -> str:
    """Why a data set cannot be had, as a sentence; empty where it can."""
    if data_file(name) is not None:
        return ""
    try:
        load_data(name)
    except InputError as error:
        return str(error)
    return ""
