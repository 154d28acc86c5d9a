"""What the package tells Python's ``logging``, under the name ``blocc``: nothing is shown unless somebody listens.

``logging.basicConfig(level="INFO")`` shows how runs begin and end, ``level="DEBUG"`` every iteration as well.
"""

from __future__ import annotations

import logging
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger("blocc")
logger.addHandler(logging.NullHandler())  # without it Python writes warnings of silent programs to standard error


def log_answer(answer: T, *facts: str) -> T:
    """The answer itself, after one line about it in the log: the first of its report, and these facts."""
    if logger.isEnabledFor(logging.INFO):
        logger.info("%s", ", ".join([str(answer).partition("\n")[0], *facts]))
    return answer
