"""Problems ready to solve: the paper's toy and a collection with known answers."""

from __future__ import annotations
