"""A worker process of this machine: reads orders from standard input, writes outcomes to standard output.

Each message is one line of JSON. What a study's function prints goes to standard error. When standard input ends, the
program that gave the orders is gone or wants no more, and the worker ends at once, in the middle of a batch, too.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading
from dataclasses import asdict
from typing import Any, TextIO

from blocc._lib.streams import outlive_readers
from blocc.studies.compute import compute_batch

READY = "ready"


def _obey(stream: TextIO, orders: queue.SimpleQueue[str]) -> None:
    for line in stream:
        orders.put(line)
    os._exit(0)


def _reply(stream: TextIO, message: Any) -> None:
    try:
        print(json.dumps(message), file=stream, flush=True)
    except BrokenPipeError:  # the program that gave the orders is gone, which need not be said
        os._exit(0)


def main() -> None:
    """Compute batches until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches every process of the terminal; the main one decides
    replies = os.fdopen(os.dup(1), "w", encoding="utf-8")
    stream = os.fdopen(os.dup(0), encoding="utf-8")
    os.dup2(2, 1)
    outlive_readers()
    sys.stdout = sys.stderr
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)  # a function that reads must not swallow orders
    orders: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_obey, args=(stream, orders), daemon=True).start()
    _reply(replies, READY)
    definition, version = json.loads(orders.get())
    while True:
        outcome = compute_batch(definition, json.loads(orders.get()), version)
        _reply(replies, asdict(outcome))


if __name__ == "__main__":
    main()
