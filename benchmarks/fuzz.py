"""Every reader of the package on spoiled files, for as long as you like: what comes out, how long it takes, how much
memory it needs.

    python benchmarks/fuzz.py [--seconds 60] [--seed 0] [--only NAME]

Anything but a value or one of the package's own errors is a crash; so is an input that takes longer than ``--patience``
seconds. The exit code is 1 where there was any, and the input that did it is kept in a folder that is printed.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import faulthandler
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from blocc.errors import BloccError
from fuzz_inputs import READERS, Reader, draw, put

#: Where there is a file system in memory, the disk does not slow the fuzzing down.
MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None


class Hang(BaseException):
    """An input took too long."""


def memory(field: str) -> int:
    """A line of /proc/self/status in bytes; 0 where the system has none."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith(field)), 0)


def forget_peak() -> None:
    """Let the kernel measure the largest memory anew."""
    with contextlib.suppress(OSError):  # then the peak is that of the whole run, an upper bound
        Path("/proc/self/clear_refs").write_text("5")


def fuzz(name: str, reader: Reader, seconds: float, seed: int, patience: float) -> int:
    """Fuzz one reader, print its line, and return the number of crashes."""
    random, valid = Random(f"{seed} {name}"), reader.valid()
    outcomes: collections.Counter[str] = collections.Counter()
    crashes, slowest, largest = 0, 0.0, 0
    end = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(dir=MEMORY) as work:
        count = 0
        while time.monotonic() < end:
            folder = Path(work) / str(count)
            folder.mkdir()
            files = draw(random, reader, valid)
            put(files, folder)
            count += 1
            forget_peak()
            before, started = memory("VmRSS"), time.perf_counter()
            faulthandler.dump_traceback_later(3 * patience, exit=True)  # for code that no signal can stop
            signal.setitimer(signal.ITIMER_REAL, patience)
            try:
                reader.read(folder)
                outcomes["read"] += 1
            except BloccError as error:
                outcomes[type(error).__name__] += 1
            except (Exception, Hang) as error:
                outcomes[f"CRASH {type(error).__name__}"] += 1
                crashes += 1
                if crashes <= 5:
                    kept = Path(tempfile.mkdtemp(prefix="blocc-fuzz-"))
                    put(files, kept)
                    last = traceback.extract_tb(error.__traceback__)[-1]
                    print(f"  {name}: {type(error).__name__}: {error!s:.200} at {last.filename}:{last.lineno}; {kept}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                faulthandler.cancel_dump_traceback_later()
            slowest = max(slowest, time.perf_counter() - started)
            largest = max(largest, memory("VmHWM") - before)
            for file in folder.iterdir():
                file.unlink()
            folder.rmdir()
    words = ", ".join(f"{kind} {number}" for kind, number in sorted(outcomes.items()))
    print(f"{name:20} {count:8,} {crashes:7} {slowest:8.2f} {largest / 2**20:8.0f}   {words}", flush=True)
    return crashes


def main() -> int:
    """Fuzz all readers in turn."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="for all readers together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--patience", type=float, default=10.0, help="seconds for one input")
    parser.add_argument("--only", help="part of a reader's name")
    given = parser.parse_args()

    def give_up(number: int, frame: object) -> None:
        raise Hang(f"longer than {given.patience:g} s")

    signal.signal(signal.SIGALRM, give_up)
    chosen = {name: reader for name, reader in READERS.items() if not given.only or given.only in name}
    print(f"{'reader':20} {'inputs':>8} {'crashes':>7} {'max s':>8} {'max MiB':>8}   outcomes")
    crashes = 0
    for name, reader in chosen.items():
        crashes += fuzz(name, reader, given.seconds / len(chosen), given.seed, given.patience)
    return 1 if crashes else 0


if __name__ == "__main__":
    raise SystemExit(main())
