"""``python -m reproduction``: the tables and figures of the paper, computed again."""

from __future__ import annotations

import sys

from blocc._lib.streams import outlive_readers
from reproduction.command import main

if __name__ == "__main__":
    outlive_readers()
    sys.exit(main(sys.argv[1:]))
