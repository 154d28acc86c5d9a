"""Built-in data sets: scikit-learn's own fetcher runs on recorded answers of openml.org, without a network."""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import json
import socket
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError

import numpy as np
import pytest

from blocc.errors import InputError
from blocc.svm.data.samples import read_samples

pytest.importorskip("sklearn", reason="needs scikit-learn, the extra blocc[svm]")
RECORDED = Path(__file__).parent / "recorded"
HOST = "https://www.openml.org/"
SEARCH = "api/v1/json/data/list/data_name/{}/limit/2/status/active/"
FILES = {
    "api/v1/json/data/37": "diabetes/description.json",
    "api/v1/json/data/features/37": "diabetes/features.json",
    "api/v1/json/data/qualities/37": "diabetes/qualities.json",
    "data/v1/download/37/diabetes.arff": "diabetes/data.arff",
    SEARCH.format("fourclass"): "fourclass/search.json",
    "api/v1/json/data/99001": "fourclass/description.json",
    "api/v1/json/data/features/99001": "fourclass/features.json",
    "data/v1/download/99001/fourclass.arff": "fourclass/data.arff",
}


class Answer(io.BytesIO):
    """What ``urlopen`` returns, as far as the fetcher looks at it."""

    def __init__(self, content: bytes, *, zipped: bool) -> None:
        super().__init__(content)
        self.headers = {"Content-Encoding": "gzip"} if zipped else {}

    def info(self) -> dict[str, str]:
        return self.headers


class Server:
    """Stands in for openml.org; ``change`` may alter any answer."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.files = {path: (RECORDED / file).read_bytes() for path, file in FILES.items()}
        self.change: Callable[[str, bytes], bytes] = lambda _, content: content

    def urlopen(self, request: Any, *_: Any, **__: Any) -> Answer:
        path = request.full_url.removeprefix(HOST)
        self.asked.append(path)
        if path not in self.files:
            raise HTTPError(request.full_url, 412, "no such data set", None, None)  # type: ignore[arg-type]
        content = self.files[path]
        zipped = path.endswith(".arff")  # the server compresses large answers only
        return Answer(self.change(path, gzip.compress(content) if zipped else content), zipped=zipped)


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    server = Server()
    monkeypatch.setattr("sklearn.datasets._openml.urlopen", server.urlopen)
    monkeypatch.setattr(time, "sleep", lambda _: None)  # between attempts
    return server


def replace_arff(server: Server, content: bytes) -> None:
    """Other samples for diabetes, with the checksum that belongs to them."""
    server.files["data/v1/download/37/diabetes.arff"] = content
    description = json.loads(server.files["api/v1/json/data/37"])
    description["data_set_description"]["md5_checksum"] = hashlib.md5(content).hexdigest()
    server.files["api/v1/json/data/37"] = json.dumps(description).encode()


def raw(name: str) -> np.ndarray:
    """The values of the recorded file, read without any parser for its format."""
    lines = (RECORDED / name / "data.arff").read_text(encoding="utf-8").partition("@data\n")[2].splitlines()
    if name == "diabetes":
        return np.array([[float(cell) for cell in line.split(",")[:8]] for line in lines])
    rows = [dict(pair.split() for pair in line.strip("{}").split(",")) for line in lines]
    return np.array([[float(row.get("0", 0)), float(row.get("1", 0))] for row in rows])


@pytest.mark.parametrize("name", ["diabetes", "fourclass"])
def test_fetched_once_and_scaled(name: str, server: Server, tmp_path: Path) -> None:
    data = read_samples(name, cache=tmp_path)
    original = raw(name)
    assert data.X.shape == original.shape == (12, 8 if name == "diabetes" else 2)
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous
    np.testing.assert_array_equal(data.X.min(axis=0), -1)
    np.testing.assert_array_equal(data.X.max(axis=0), 1)
    for column in range(data.n_features):
        expected = np.interp(original[:, column], [original[:, column].min(), original[:, column].max()], [-1, 1])
        np.testing.assert_allclose(data.X[:, column], expected, atol=1e-14)
    assert data.name == name

    asked = len(server.asked)
    assert asked == 4
    again = read_samples(name, cache=str(tmp_path))
    np.testing.assert_array_equal(again.X, data.X)
    np.testing.assert_array_equal(again.y, data.y)
    assert len(server.asked) == asked


def test_labels_and_names(server: Server, tmp_path: Path) -> None:
    diabetes = read_samples("diabetes", cache=tmp_path)
    assert diabetes.feature_names == ("preg", "plas", "pres", "skin", "insu", "mass", "pedi", "age")
    assert diabetes.classes.tolist() == ["tested_negative", "tested_positive"]
    assert (diabetes.y == "tested_positive").tolist() == [bool(int(flag)) for flag in "101010101100"]
    fourclass = read_samples("fourclass", cache=tmp_path)
    assert fourclass.feature_names == ("X1", "X2")
    assert fourclass.y.dtype == np.int64
    assert fourclass.y.tolist() == [-1, 1, 1, 1, -1, 1, -1, 1, -1, -1, 1, -1]


def test_default_cache_is_that_of_scikit_learn(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path))
    read_samples("diabetes")
    assert list(tmp_path.rglob("diabetes.arff.gz"))


def test_fourclass_under_its_other_name(server: Server, tmp_path: Path) -> None:
    server.files[SEARCH.format("fourclass_scale")] = server.files.pop(SEARCH.format("fourclass"))
    assert read_samples("fourclass", cache=tmp_path).n_features == 2


def test_unknown_to_openml(server: Server, tmp_path: Path) -> None:
    del server.files[SEARCH.format("fourclass")]
    with pytest.raises(InputError, match=r"for fourclass cannot be read \(No active dataset fourclass_scale found"):
        read_samples("fourclass", cache=tmp_path)


@pytest.mark.parametrize(
    "error",
    [
        URLError(OSError("Name or service not known")),
        HTTPError(HOST, 503, "Service Unavailable", None, None),  # type: ignore[arg-type]
        TimeoutError("timed out"),
        ConnectionResetError("reset by peer"),
        http.client.IncompleteRead(b""),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("name", ["diabetes", "fourclass"])
def test_no_network(
    name: str, error: Exception, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("sklearn.datasets._openml.urlopen", fail)
    before = socket.getdefaulttimeout()
    with pytest.raises(InputError) as caught:
        read_samples(name, cache=tmp_path)
    message = str(caught.value)
    assert "there is no connection to openml.org" in message
    assert name in message
    assert "CSV or LIBSVM file instead" in message
    assert "breast_cancer, which works offline" in message
    assert socket.getdefaulttimeout() == before


def test_waiting_has_an_end(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, during, released = socket.getdefaulttimeout(), [], threading.Event()

    def hang(_: str, content: bytes) -> bytes:
        during.append(socket.getdefaulttimeout())
        released.wait(60.0)
        return content

    server.change = hang
    monkeypatch.setattr("blocc.svm.data.openml.SECONDS", 0.2)
    try:
        with pytest.raises(InputError, match=r"no connection to openml\.org, .*\(no answer within 0\.2 seconds\)"):
            read_samples("diabetes", cache=tmp_path)
    finally:
        released.set()
    assert during == [before]  # the limit of other connections of the process is left as it was


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "garbage": lambda _: b"\x00\xff<html>Bad gateway</html>",
    "truncated": lambda content: content[: len(content) // 2],
    "other JSON": lambda _: b"[1, 2]",
}


@pytest.mark.parametrize("kind", BROKEN)
@pytest.mark.parametrize("path", FILES, ids=lambda path: FILES[path])
def test_broken_answers(path: str, kind: str, server: Server, tmp_path: Path) -> None:
    server.change = lambda asked, content: BROKEN[kind](content) if asked == path else content
    name = FILES[path].partition("/")[0]
    with pytest.raises(InputError, match=f"what openml.org sent for {name} cannot be read") as caught:
        read_samples(name, cache=tmp_path)
    assert "delete the folder openml in" in str(caught.value)


def test_broken_cache_heals(server: Server, tmp_path: Path) -> None:
    server.change = lambda asked, content: b"garbage"
    with pytest.raises(InputError):
        read_samples("diabetes", cache=tmp_path)
    server.change = lambda asked, content: content
    assert read_samples("diabetes", cache=tmp_path).n_samples == 12


def other_features(document: Any) -> None:
    document["data_features"]["feature"][0]["is_ignore"] = "true"


def no_target(document: Any) -> None:
    for feature in document["data_features"]["feature"]:
        feature["is_target"] = "false"


@pytest.mark.parametrize(("alter", "message"), [(other_features, r"shape \(12, 7\)"), (no_target, r"shape \(12, 9\)")])
def test_another_data_set_of_that_name(
    alter: Callable[[Any], None], message: str, server: Server, tmp_path: Path
) -> None:
    path = "api/v1/json/data/features/37"
    document = json.loads(server.files[path])
    alter(document)
    server.files[path] = json.dumps(document).encode()
    with pytest.raises(InputError, match="is another data set") as caught:
        read_samples("diabetes", cache=tmp_path)
    assert message.replace("\\", "") in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [(b"0.61", b"?", "missing values"), (b"tested_positive\n", b"tested_negative\n", "1 classes")],
)
def test_unfit_content(old: bytes, new: bytes, message: str, server: Server, tmp_path: Path) -> None:
    replace_arff(server, server.files["data/v1/download/37/diabetes.arff"].replace(old, new))
    with pytest.raises(InputError, match=message):
        read_samples("diabetes", cache=tmp_path)


def test_constant_feature_becomes_zero(server: Server, tmp_path: Path) -> None:
    path = "data/v1/download/37/diabetes.arff"
    head, mark, samples = server.files[path].partition(b"@data\n")
    constant = [b"3," + line.partition(b",")[2] for line in samples.splitlines()]
    replace_arff(server, head + mark + b"\n".join(constant) + b"\n")
    assert not read_samples("diabetes", cache=tmp_path).X[:, 0].any()


def test_cache_that_cannot_be_written(server: Server, tmp_path: Path) -> None:
    occupied = tmp_path / "file"
    occupied.write_text("not a folder", encoding="utf-8")
    with pytest.raises(InputError, match=r"^cache: diabetes .* choose a folder that can be written"):
        read_samples("diabetes", cache=occupied / "below")


def test_breast_cancer_is_offline(server: Server) -> None:
    data = read_samples("breast_cancer")
    assert (data.n_samples, data.n_features, data.name) == (569, 30, "breast_cancer")
    assert data.classes.tolist() == [0, 1]
    assert data.y.dtype == np.int64
    assert data.feature_names[0] == "mean radius"
    assert server.asked == []


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "fourclass"])
def test_without_scikit_learn(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [module for module in sys.modules if module.partition(".")[0] == "sklearn"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(InputError, match=rf'{name} is read with scikit-learn.*pip install "blocc\[svm\]"'):
        read_samples(name)


def test_label_of_a_built_in_set() -> None:
    with pytest.raises(InputError, match="label cannot be chosen for the built-in data set diabetes"):
        read_samples("diabetes", label="age")
