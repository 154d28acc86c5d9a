"""Shared by all tests: modules with helpers live beside this file and are imported by name."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Thousands of compiled programs stay alive: looking through all of them again and again for garbage takes long.
gc.set_threshold(50_000, 20, 100)
