"""Shared by all tests: modules with helpers live beside this file and are imported by name."""

from __future__ import annotations

import gc
import signal
import sys
import threading
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

# Thousands of compiled programs stay alive: looking through all of them again and again for garbage takes long.
gc.set_threshold(50_000, 20, 100)


def pytest_collection_finish() -> None:
    """Modules stay for good: no collection looks through them again."""
    gc.collect()
    gc.freeze()


# Where the shell starts the tests in the background, Ctrl-C is ignored, in them and in what they start.
if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
