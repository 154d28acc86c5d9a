"""The numerics' tests as on other machines: ``make test-portable``, or ``NAME=nehalem`` for one setting.

Rounding is another on every processor: OpenBLAS, NumPy, XLA and Numba choose their instructions at run time. Each
setting makes them choose as on another machine, and changes what else a machine may have otherwise: threads, language,
time zone, the order of sets, a home that cannot be written to, other programs that keep the cores busy, a user without
rights, a path with spaces. A setting that this processor has no instructions for is left out, and said to be.
"""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from numpy._core._multiarray_umath import __cpu_dispatch__, __cpu_features__

ROOT = Path(__file__).parents[1]
#: Folders and files of tests whose results are numbers; reports, commands and pages only show them.
NUMERICS = (
    *(f"tests/{name}" for name in ("inner", "outer", "judge", "run", "resume", "derivatives", "global_search")),
    *(f"tests/{name}" for name in ("methods", "problems", "cvxpy", "roads", "svm", "transport", "power")),
    *(f"tests/test_{name}.py" for name in ("degenerate", "hostile", "lagrangian", "lifting", "multipliers", "penalty")),
    *(f"tests/test_{name}.py" for name in ("sets", "solve", "solve_many", "stress", "terms")),
)
WIDEST = [name for name in __cpu_dispatch__ if "V4" in name or "AVX512" in name]  #: of NumPy's sets of instructions


@dataclass(frozen=True)
class Setting:
    """One machine to be like."""

    name: str
    blas: str  #: kernels of OpenBLAS
    instructions: str = ""  #: the most that XLA may use; empty: all that the processor has
    without: tuple[str, ...] = ()  #: what NumPy may not use
    processor: str = ""  #: as Numba (LLVM) calls it; empty: this one
    threads: int = 1
    needs: str = "AVX2"
    busy: int = 0  #: programs that keep a core busy each
    elsewhere: bool = False  #: in a clone whose path has spaces, where ../shared is not, and without rights
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self, place: Path, folder: Path) -> dict[str, str]:
        """The environment. Programs that XLA compiled for one setting must not serve another."""
        xla = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={self.instructions}" if self.instructions else ""
        chosen = {
            "OPENBLAS_CORETYPE": self.blas,
            "OPENBLAS_NUM_THREADS": str(self.threads),
            "XLA_FLAGS": xla or os.environ.get("XLA_FLAGS", ""),
            "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in self.without if __cpu_features__.get(name)),
            "NUMBA_CPU_NAME": self.processor,
            "NUMBA_CPU_FEATURES": "",
            "NUMBA_CACHE_DIR": str(folder / "numba"),
            "JAX_COMPILATION_CACHE_DIR": str(folder / "xla"),
            "PYTHONPATH": str(place / "src"),
            **self.environment,
        }
        return {**{name: value for name, value in os.environ.items() if name not in chosen}, **_given(chosen)}


SETTINGS = (
    Setting("haswell", "Haswell", "AVX2", tuple(WIDEST), "haswell", environment={"LC_ALL": "C", "PYTHONHASHSEED": "1"}),
    Setting("skylake", "SkylakeX", threads=2, needs="AVX512F", busy=2),
    Setting("zen", "Zen", "AVX2", tuple(WIDEST), "znver2", threads=2, environment={"TZ": "Pacific/Kiritimati"}),
    Setting(
        "nehalem",
        *("Nehalem", "SSE4_2", tuple(__cpu_dispatch__), "nehalem"),
        needs="SSE42",
        elsewhere=True,
        environment={"LC_ALL": "C", "TZ": "America/St_Johns", "PYTHONHASHSEED": "2", "HOME": "/dev/null/home"},
    ),
)


def _given(variables: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in variables.items() if value}


@contextmanager
def kept_busy(count: int) -> Iterator[None]:
    """So many other programs that never wait."""
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.wait()


@contextmanager
def place_of(setting: Setting) -> Iterator[tuple[Path, Path, pwd.struct_passwd | None]]:
    """Where the tests run, where they keep compiled programs, and as whom if not as this user."""
    folder = ROOT / ".pytest_cache" / "portable" / setting.name
    if not setting.elsewhere:
        yield ROOT, folder, None
        return
    with tempfile.TemporaryDirectory(prefix="another place ") as name:
        clone, folder = Path(name) / "of blocc", Path(name) / "compiled programs"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        folder.mkdir()
        nobody = _powerless()
        if nobody:
            for path in (Path(name), *Path(name).rglob("*")):
                os.chown(path, nobody.pw_uid, nobody.pw_gid)
        yield clone, folder, nobody


def _powerless() -> pwd.struct_passwd | None:
    """A user without rights, if this one is root and that one can start this Python."""
    try:
        nobody = pwd.getpwnam("nobody")
        done = subprocess.run([sys.executable, "-c", ""], user=nobody.pw_uid, group=nobody.pw_gid, capture_output=True)
    except (KeyError, OSError):
        return None
    return nobody if done.returncode == 0 else None


def run(setting: Setting, tests: list[str]) -> bool:
    """Whether the tests pass there."""
    with place_of(setting) as (place, folder, nobody), kept_busy(setting.busy):
        print(f"== {setting.name}, in {place}{', as nobody' if nobody else ''}", flush=True)
        call = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-p", "no:cacheprovider", *tests]
        whose = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []} if nobody else {}
        return subprocess.run(call, cwd=place, env=setting.variables(place, folder), **whose).returncode == 0


def main(names: list[str]) -> int:
    """Every setting, or those that are named."""
    chosen = [setting for setting in SETTINGS if setting.name in names or not names]
    if not chosen:
        print(f"NAME must be one of {', '.join(setting.name for setting in SETTINGS)}, got {', '.join(names)}")
        return 2
    told = {}
    for setting in chosen:
        if not __cpu_features__.get(setting.needs):
            told[setting.name] = f"left out: this processor has no {setting.needs}"
        else:
            told[setting.name] = "green" if run(setting, list(NUMERICS)) else "red"
    print("\n".join(f"{name}: {outcome}" for name, outcome in told.items()))
    return int("red" in told.values())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
