"""What there is to read: uncommon numbers in the numerics, and the files that ``solve`` goes through.

    python benchmarks/source_counts.py            # both counts
    python benchmarks/source_counts.py --each     # with every uncommon number, and every file

An uncommon number is a float literal other than 0, 1, 2, 3, 4, 1/2, 10 and 100, whatever its sign; the numerics are the
package without report, cli, studies and problems. The way of ``solve`` is counted twice: the files that importing it
loads, and those of them in which anything runs while the README's problem is solved.
"""

from __future__ import annotations

import argparse
import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[1] / "src" / "blocc"
COMMON = frozenset({0.0, 1.0, 2.0, 3.0, 4.0, 0.5, 10.0, 100.0})
NOT_NUMERICS = frozenset({"report", "cli", "studies", "problems"})

#: Prints the files that are loaded, and those of them in which a function runs.
TRACED = """
import sys
import blocc.solve
loaded = sorted(m.__file__ for n, m in list(sys.modules.items()) if n.startswith("blocc") and m.__file__)
from blocc import BilevelProblem, Box, Reals, solve
ran = set()
def seen(frame, event, argument):
    if event == "call":
        ran.add(frame.f_code.co_filename)
problem = BilevelProblem(
    upper=lambda x, y: (x - 3) ** 2 + (y - 1) ** 2,
    lower=lambda x, y: (y - 2 * x) ** 2,
    inequality=lambda x, y: y - x,
    x_set=Box(0.0, 3.0),
    y_set=Reals(),
)
sys.setprofile(seen)
solve(problem, progress=False)
sys.setprofile(None)
for name in loaded:
    print("loaded", name)
for name in sorted(ran):
    print("ran", name)
"""


class Uncommon(NamedTuple):
    """A number, and where it stands."""

    file: str
    line: int
    value: float


class Counted(NamedTuple):
    """Files and their lines."""

    files: int
    lines: int


def numerics() -> Iterator[Path]:
    """The files of the numerics."""
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] not in NOT_NUMERICS:
            yield path


def lines_of(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def uncommon() -> list[Uncommon]:
    """All uncommon numbers of the numerics."""
    return [
        Uncommon(path.relative_to(SOURCE).as_posix(), node.lineno, node.value)
        for path in numerics()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, float) and node.value not in COMMON
    ]


def per_thousand() -> float:
    """Uncommon numbers in a thousand lines of the numerics."""
    return 1000.0 * len(uncommon()) / sum(map(lines_of, numerics()))


def way_of_solve() -> dict[str, list[Path]]:
    """Files that importing ``solve`` loads, and those in which something runs; of a process of its own."""
    done = subprocess.run([sys.executable, "-c", TRACED], capture_output=True, text=True, check=True)
    found: dict[str, list[Path]] = {"loaded": [], "ran": []}
    for line in done.stdout.splitlines():
        kind, _, name = line.partition(" ")
        path = Path(name)
        if path.is_relative_to(SOURCE):
            found[kind].append(path)
    return found


def counted(paths: list[Path]) -> Counted:
    return Counted(len(paths), sum(map(lines_of, paths)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--each", action="store_true", help="every number and every file")
    given = parser.parse_args()
    found, way = uncommon(), way_of_solve()
    lines, numbers = Counter[str](), Counter[str]()
    for path in numerics():
        lines[path.relative_to(SOURCE).parts[0]] += lines_of(path)
    for one in found:
        numbers[one.file.partition("/")[0]] += 1
        if given.each:
            print(f"{one.file}:{one.line}  {one.value:g}")
    for room in sorted(numbers, key=lambda name: -numbers[name]):
        print(f"{room:24} {numbers[room]:5d} in {lines[room]:6d} lines: {1000 * numbers[room] / lines[room]:5.1f}")
    print(f"uncommon numbers per 1,000 lines of numerics: {per_thousand():.1f} ({len(found)} in {lines.total()})")
    for kind, paths in way.items():
        if given.each:
            print("\n".join(f"{kind} {path.relative_to(SOURCE)} {lines_of(path)}" for path in paths))
        print("way of solve, {}: {} files, {} lines".format(kind, *counted(paths)))


if __name__ == "__main__":
    main()
