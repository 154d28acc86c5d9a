"""What is shipped: the wheel, the source archive, the versions they need, and the Python they run on."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCK = (ROOT / "requirements.lock").read_text(encoding="utf-8").split()
NETWORKS = ("three", "nine", "seville")


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source archive, built from a copy so that nothing is left in the repository."""
    (needed,) = (Requirement(text) for text in PROJECT["build-system"]["requires"])
    if version("setuptools") not in needed.specifier:
        pytest.skip(f"building needs {needed}, here is {version('setuptools')}; make install brings it")
    folder = tmp_path_factory.mktemp("build")
    copy, out = folder / "blocc", folder / "dist"
    out.mkdir()
    skipped = shutil.ignore_patterns("__pycache__", "*.egg-info", ".*", "build", "dist", "runs")
    shutil.copytree(ROOT, copy, ignore=skipped)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out)]  # the wheel out of the archive
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stderr
    return out


def modules() -> set[str]:
    return {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}


def data_files() -> set[str]:
    assets = (path.name for path in (ROOT / "src" / "blocc" / "kit" / "assets").iterdir())
    networks = [f"blocc/transport/network/data/{name}.json" for name in NETWORKS] + [
        "blocc/roads/data/sioux_falls.json"
    ]
    return {"blocc/py.typed", *(f"blocc/kit/assets/{name}" for name in assets), *networks}


def examples() -> set[str]:
    folder = ROOT / "examples"
    files = [*folder.glob("*.py"), *folder.glob("*.toml"), *folder.glob("gallery/*.py")]
    return {path.relative_to(ROOT).as_posix() for path in files}


def test_wheel_holds_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = next(archive.read(name).decode() for name in archive.namelist() if name.endswith("METADATA"))
        shipped = {name.partition(".dist-info/")[2] for name in archive.namelist()}
        assert shipped >= {"licenses/LICENSE", "licenses/NOTICE"}
    assert names == modules() | data_files() | {f"blocc/{name}" for name in examples()}
    assert f"Requires-Python: {PROJECT['project']['requires-python']}" in metadata


def test_source_archive_builds_and_holds_no_tests(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()} - {""}
    own = {name for name in names if not name.startswith("src/") and "/" not in name}
    assert own >= {"pyproject.toml", "README.md", "LICENSE", "NOTICE", "PKG-INFO"}
    assert {f"src/{name}" for name in modules() | data_files()} | examples() <= names
    pages = {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert pages | {"mkdocs.yml", "CHANGELOG.md", "CITATION.cff", "SECURITY.md", "setup.py"} <= names
    scripts = [path for folder in ("benchmarks", "tools", "reproduction") for path in (ROOT / folder).glob("*.py")]
    needed = {path.relative_to(ROOT).as_posix() for path in scripts} - {"benchmarks/fuzz.py"}  # that reads the tests'
    assert needed | {"Makefile", "requirements.lock"} <= names  # make run, docs, bench and reproduce
    foreign = r"tests|benchmarks/fuzz|reproduction/tests|runs|build|\.venv|shared"
    assert not [name for name in names if re.match(foreign, name)]
    assert sdist.stat().st_size < 5e6


def test_sources_of_data_are_named() -> None:
    """Every file of data that is another's, in the file that travels with the package; its terms where it is used."""
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    assert not [name for name in data_files() if "/data/" in name and name.rpartition("/")[2] not in notice]
    assert "academic research purposes only" in " ".join(notice.split())
    roads = (ROOT / "docs" / "roads.md").read_text(encoding="utf-8")
    assert "https://github.com/bstabler/TransportationNetworks" in roads
    assert "Escudero" in (ROOT / "docs" / "transport.md").read_text(encoding="utf-8")


def test_wheel_installs_and_runs(built: Path, tmp_path: Path) -> None:
    """In an environment of its own, which borrows the dependencies from this one instead of downloading them."""
    (wheel,) = built.glob("*.whl")
    venv.create(tmp_path / "env", with_pip=False, symlinks=True)
    python = tmp_path / "env" / "bin" / "python"
    site = next((tmp_path / "env" / "lib").glob("python*/site-packages"))
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index", "--quiet"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert (site / "blocc" / "py.typed").is_file()
    borrowed = next(path for path in map(Path, sys.path) if (path / "jax").is_dir())
    (site / "borrowed.pth").write_text(f"{borrowed}\n")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def call(*command: str) -> str:
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, cwd=tmp_path, env=clean)
        assert done.returncode == 0, done.stderr
        return done.stdout

    where = "import blocc; print(blocc.__file__); print(blocc.__version__)"
    file, found = call(str(python), "-W", "error", "-c", where).splitlines()
    assert Path(file).is_relative_to(site)
    assert found == PROJECT["project"]["version"]
    assert call(str(tmp_path / "env" / "bin" / "blocc"), "--version").strip() == f"blocc {found}"
    (tmp_path / "elsewhere").mkdir()
    assert "pricing" in call(str(tmp_path / "env" / "bin" / "blocc"), "examples", "list")
    call(str(tmp_path / "env" / "bin" / "blocc"), "examples", "copy", "toy", "elsewhere")
    assert (tmp_path / "elsewhere" / "toy.py").read_bytes() == (ROOT / "examples" / "toy.py").read_bytes()
    blocked = "import sys; sys.modules['typer'] = sys.modules['rich'] = None; from blocc.cli.main import main; main()"
    assert call(str(python), "-c", blocked, "--version").strip() == f"blocc {found}"  # after a plain pip install
    assert f"blocc           {found}" in call(str(python), "-c", blocked, "info")
    assert "pricing" in call(str(python), "-c", blocked, "examples", "list")
    assert "toy.py" in call(str(python), "-c", blocked, "examples", "copy", "toy")
    read = "from blocc.transport.network.files import read_network; print(read_network('nine').n_nodes)"
    assert call(str(python), "-c", read).strip() == "9"


# --- versions ---------------------------------------------------------------------------------------------------------
def requirements() -> list[Requirement]:
    project = PROJECT["project"]
    lists = [project["dependencies"], *project["optional-dependencies"].values(), PROJECT["dependency-groups"]["dev"]]
    lists.append(PROJECT["build-system"]["requires"])
    return [Requirement(text) for texts in lists for text in texts]


def locked() -> dict[str, Version]:
    pairs = [line.split("==") for line in LOCK]
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def test_lock_pins_every_requirement_within_its_bounds() -> None:
    pins = locked()
    for requirement in requirements():
        name = canonicalize_name(requirement.name)
        if name == "blocc":
            continue
        assert name in pins, f"requirements.lock lacks {name}"
        assert pins[name] in requirement.specifier, f"{name} {pins[name]} is locked, but {requirement} is wanted"


def test_every_line_of_the_lock_is_an_exact_version() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[A-Za-z0-9_.!+-]+", line) for line in LOCK)


def test_supported_versions_of_python_are_named_alike() -> None:
    workflow = (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    tested = re.findall(r'"(3\.\d+)"', workflow)
    named = [line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    assert set(named) == set(tested)
    classifiers = [line for line in PROJECT["project"]["classifiers"] if "Python :: 3." in line]
    lowest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert classifiers[0].endswith(f":: {lowest}")
    assert PROJECT["tool"]["mypy"]["python_version"] == lowest


@pytest.mark.parametrize(
    "minor", [11, pytest.param(12, marks=pytest.mark.slow), pytest.param(13, marks=pytest.mark.slow), 14]
)
def test_source_is_that_of_every_supported_python(minor: int) -> None:
    """The grammar of each version; where an interpreter of it is installed, its compiler, with warnings as errors."""
    files = sorted((ROOT / "src").rglob("*.py"))
    for path in files:
        ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, minor))
    other = interpreter(minor)
    if other is not None:
        check = "import sys; [compile(open(f, encoding='utf-8').read(), f, 'exec') for f in map(str.strip, sys.stdin)]"
        names = "\n".join(map(str, files))
        done = subprocess.run([other, "-W", "error", "-c", check], input=names, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


def interpreter(minor: int) -> str | None:
    """A Python of this version that really starts."""
    for name in (f"python3.{minor}", *map(str, Path.home().glob(f".pyenv/versions/3.{minor}.*/bin/python"))):
        found = shutil.which(name)
        if found and subprocess.run([found, "-c", ""], capture_output=True).returncode == 0:
            return found
    return None
