"""How x moves: projected gradient as published, quasi-Newton and spectral methods, and continuation in gamma."""

from __future__ import annotations
