"""Files, columns, words, figures and exit codes of the applications' commands are those of a stored table."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("cvxpy")
pytest.importorskip("matpowercaseframes")
pytest.importorskip("numba")
pytest.importorskip("sklearn")
pytest.importorskip("matplotlib")

from frozen_outputs import STORED, differences, outcomes


def test_commands_write_what_they_wrote(tmp_path: Path) -> None:
    """Where this fails on purpose: ``python tests/frozen_outputs.py``, and a line in CHANGELOG.md."""
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    assert list(differences(outcomes(tmp_path), stored)) == []


@pytest.mark.parametrize(
    ("found", "words"),
    [
        ({"a": [1.0, 2.001], "b": "yes"}, []),
        ({"a": [1.0, 2.01], "b": "yes"}, ["/a[1] is 2.01 and was 2.0"]),
        ({"a": [1.0, 2.0], "b": "no"}, ["/b is 'no' and was 'yes'"]),
        ({"b": "yes", "a": [1.0, 2.0]}, [" has another order"]),
        ({"a": [1.0, 2.0], "c": "yes"}, ["/b is gone", "/c is new"]),
    ],
)
def test_a_change_is_seen(found: dict[str, object], words: list[str]) -> None:
    assert list(differences(found, {"a": [1.0, 2.0], "b": "yes"})) == words
