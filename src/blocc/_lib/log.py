"""What the package tells Python's ``logging``, under the name ``blocc``: nothing is shown unless somebody listens.

``logging.basicConfig(level="INFO")`` shows how runs begin and end, ``level="DEBUG"`` every iteration as well.
"""

from __future__ import annotations

import logging

logger = logging.getLogger("blocc")
logger.addHandler(logging.NullHandler())  # without it Python writes warnings of silent programs to standard error
