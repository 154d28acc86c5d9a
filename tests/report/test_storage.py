"""Results on disk: exact round trips, and clear words for every kind of broken file."""

from __future__ import annotations

import json
import os
import tempfile
from collections import namedtuple
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from blocc._lib.digests import sealed
from blocc.errors import BloccError, OptionError
from blocc.kit.storage import StorageError
from blocc.lagrangian import Multipliers
from blocc.report.storage import FORMAT, VERSION, describe, load_result, save_result
from blocc.result import Certificate, History, HistoryRow, Result, Status
from old_results import as_pair

Pair = namedtuple("Pair", "left right")


def make_result(**changes: object) -> Result:
    rows = [HistoryRow(*np.random.default_rng(seed).normal(size=len(HistoryRow._fields))) for seed in range(7)]
    fields = {
        "x": {"price": np.array([0.1, 1 / 3, np.pi]), "capacity": np.array(2.0)},
        "y": (np.zeros((2, 3)), [np.array([1e-300, 1e300])]),
        "y_penalty": np.array(0.5),
        "multipliers": Multipliers({"line": np.array([1.0, 2.0])}, np.zeros(0)),
        "upper_value": 0.1 + 0.2,
        "lower_value": float("-inf"),
        "upper_value_penalty": float("nan"),
        "gamma": 1e6,
        "status": Status.TIME_LIMIT,
        "message": "Stopped — “early”.",
        "certificate": Certificate(1e-9, 0.0, 3e-17, 0.1, 0.2, float("inf"), 1e-3, 0.0),
        "history": History(rows),
        "counts": {"evaluations": 12},
        "seconds": {"compile": 1.5, "run": 0.25},
        "name": "a/b: c",
        "settings": {"gamma": "auto", "inner_tolerance": None, "step": 0.01, "goal": {"tolerance": 1e-5}},
        "versions": {"blocc": "0.1.0"},
    }
    return Result(**{**fields, **changes})


def assert_same_tree(a: object, b: object) -> None:
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for one, other in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert one.dtype == other.dtype
        assert one.shape == other.shape
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", ["kept", "kept.json", "kept.npz", "deep/er/kept", "v1.2"])
def test_round_trip(tmp_path: Path, name: str) -> None:
    result = make_result()
    path = save_result(result, tmp_path / name)
    assert path.suffix == ".json"
    assert list(path.parent.iterdir()) == [path]
    again = load_result(tmp_path / name)
    for field in ("x", "y", "y_penalty", "multipliers"):
        assert_same_tree(getattr(result, field), getattr(again, field))
    for field in ("upper_value", "lower_value", "gamma", "status", "message", "certificate", "counts", "seconds"):
        assert getattr(again, field) == getattr(result, field)
    assert np.isnan(again.upper_value_penalty)
    assert (again.name, again.settings, again.versions) == (result.name, result.settings, result.versions)
    for column in History.columns:
        np.testing.assert_array_equal(getattr(again.history, column), getattr(result.history, column))
    assert repr(again) == repr(result)


def test_empty_history(tmp_path: Path) -> None:
    save_result(make_result(history=History([])), tmp_path / "kept")
    assert len(load_result(tmp_path / "kept").history) == 0


def test_named_tuples_come_back_as_tuples(tmp_path: Path) -> None:
    save_result(make_result(x=Pair(np.ones(2), np.zeros(1))), tmp_path / "kept")
    x = load_result(tmp_path / "kept").x
    assert type(x) is tuple
    np.testing.assert_array_equal(x[0], np.ones(2))


def test_keys_that_look_alike_stay_apart(tmp_path: Path) -> None:
    tree = {"a/b": np.array(1.0), "a": {"b": np.array(2.0)}, "../evil": np.array(3.0), 7: np.array(4.0)}
    save_result(make_result(x=tree), tmp_path / "kept")
    assert {key: float(value) for key, value in load_result(tmp_path / "kept").x.items() if key != "a"} == {
        "a/b": 1.0,
        "../evil": 3.0,
        7: 4.0,
    }
    assert float(load_result(tmp_path / "kept").x["a"]["b"]) == 2.0


_ARRAYS = hnp.arrays(np.float64, hnp.array_shapes(min_dims=0, max_dims=3, max_side=3, min_side=0))
_TREES = st.recursive(
    _ARRAYS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=40, deadline=None)
@given(_TREES)
def test_any_tree_round_trips(tree: object) -> None:
    with tempfile.TemporaryDirectory() as folder:
        save_result(make_result(x=tree), Path(folder) / "kept")
        assert_same_tree(load_result(Path(folder) / "kept").x, tree)


def test_nothing_is_left_behind_and_old_files_are_replaced(tmp_path: Path) -> None:
    save_result(make_result(gamma=1.0), tmp_path / "kept")
    save_result(make_result(gamma=2.0), tmp_path / "kept")
    assert load_result(tmp_path / "kept").gamma == 2.0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.json"]


class Death(BaseException):
    """The process dies: nothing after this is run."""


def test_a_save_that_dies_leaves_the_older_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every call to the system by which a file is written; and after the last of them the new result is there."""
    path = save_result(make_result(gamma=1.0), tmp_path / "kept")
    as_pair(path)  # the older one was written by an older version, as two files
    names = ("open", "fdopen", "fsync", "replace")
    steps = 0
    while True:
        left = iter(range(steps))

        def dying(call: Any, left: Any = left) -> Any:
            def step(*given: Any, **named: Any) -> Any:
                if next(left, None) is None:
                    raise Death
                return call(*given, **named)

            return step

        with monkeypatch.context() as patch:
            patch.setattr("pathlib.Path.unlink", lambda *_, **__: None)  # the dead do not tidy up
            for name in names:
                patch.setattr(os, name, dying(getattr(os, name)))
            try:
                save_result(make_result(gamma=2.0), tmp_path / "kept")
            except Death:
                died = True
            else:
                died = False
        found = load_result(path).gamma
        if not died:
            break
        assert found in (1.0, 2.0)
        if found == 2.0:  # from the moment in which it has its name
            as_pair(save_result(make_result(gamma=1.0), path))
        steps += 1
    assert found == 2.0
    assert steps >= len(names)


@pytest.mark.parametrize("version", [1, 2])
def test_pairs_of_older_versions_are_read(tmp_path: Path, version: int) -> None:
    path = as_pair(save_result(make_result(), tmp_path / "kept"), version)
    for file in (path, path.with_suffix(".npz")):
        file.rename(file.with_stem("renamed"))
    with pytest.warns(UserWarning, match="no digest: saved by an older") if version == 1 else nullcontext():
        assert_same_tree(load_result(tmp_path / "renamed").x, make_result().x)


def test_objects_are_refused(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"x/a holds Python objects"):
        save_result(make_result(x={"a": np.array([object()])}), tmp_path / "kept")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="must name a file"):
        save_result(make_result(), tmp_path)


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BloccError, match=r"there is no file .*nothing\.json"):
        load_result(tmp_path / "nothing")
    as_pair(save_result(make_result(), tmp_path / "kept")).with_suffix(".npz").unlink()
    with pytest.raises(StorageError, match=r"kept\.npz is missing"):
        load_result(tmp_path / "kept")


def test_arrays_of_another_result(tmp_path: Path) -> None:
    as_pair(save_result(make_result(), tmp_path / "one"))
    as_pair(save_result(make_result(x=np.ones(2)), tmp_path / "two"))
    (tmp_path / "two.npz").replace(tmp_path / "one.npz")
    with pytest.raises(StorageError, match=r"does not belong to one\.json"):
        load_result(tmp_path / "one")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a JSON file"),
        ("[1, 2]", "was not written by Result.save"),
        ('{"format": "other"}', "was not written by Result.save"),
        (json.dumps({"format": FORMAT}), "format version is None"),
        (json.dumps({"format": FORMAT, "version": VERSION + 1}), "upgrade blocc"),
        (json.dumps({"format": FORMAT, "version": VERSION}), "its digest is gone"),
        (json.dumps(sealed({"format": FORMAT, "version": VERSION})), "is damaged"),
        (json.dumps(sealed({"format": FORMAT, "version": VERSION, "arrays": {"npz": "*"}})), "no base64"),
    ],
)
def test_foreign_and_damaged_json(tmp_path: Path, text: str, message: str) -> None:
    save_result(make_result(), tmp_path / "kept").write_text(text)
    with pytest.raises(StorageError, match=message):
        load_result(tmp_path / "kept")


def test_damaged_content(tmp_path: Path) -> None:
    path = save_result(make_result(), tmp_path / "kept")
    document = json.loads(path.read_text())
    for damage in ({"status": "sleeping"}, {"x": {"array": "gone"}}, {"x": {"code": "rm"}}, {"certificate": 3}):
        path.write_text(json.dumps(sealed({**document, "result": {**document["result"], **damage}})))
        with pytest.raises(StorageError, match="is damaged"):
            load_result(path)


@pytest.mark.parametrize("path", [5, None])
def test_paths_of_the_wrong_kind(path: Any) -> None:
    for use in (Result.load, make_result().save):
        with pytest.raises(OptionError, match=f"path must be the path of a file .*, got {type(path).__name__}"):
            use(path)


def test_description_is_strict_json() -> None:
    document = json.loads(json.dumps(describe(make_result()), allow_nan=False))
    assert document["lower_value"] is None
    assert document["x"]["capacity"] == 2.0
    assert document["status"] == "time limit"
