"""The one-way rule, read from the tables of docs/architecture.md and checked against the imports of src/blocc."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "blocc"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
MODULES = sorted(SOURCE.rglob("*.py"))
NUMERICAL = {"blocc", "jax", "numpy", "scipy"}
LONGEST = 400
APPLICATIONS = {"transport/", "roads/", "power/", "svm/"}
OPTIONAL_TYPES = SOURCE / "_lib" / "arrays.py"  # jaxtyping, where it is installed


def rooms(section: str) -> list[str]:
    """First column of the table under one heading: ``sets.py``, ``inner/``, ..."""
    text = PAGE.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| `([\w/.]+)` \|", text, flags=re.MULTILINE)


CORE = rooms("The core")
ORDER = CORE + rooms("Around the core")


def room_of(path: Path) -> str:
    """The row of the table that a file belongs to."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) == 1 else f"{parts[0]}/"


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Full names of what a module imports when it is imported itself, with line numbers.

    Imports inside functions do not count, nor those for type checkers alone.
    """

    def visit(node: ast.AST) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
                continue
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            if isinstance(child, ast.Import):
                yield from ((alias.name, child.lineno) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"{name_of(path)}:{child.lineno} imports relatively"
                yield from ((f"{child.module}.{alias.name}", child.lineno) for alias in child.names)
            yield from visit(child)

    yield from visit(ast.parse(path.read_text(encoding="utf-8")))


def target_room(full_name: str) -> str | None:
    """The room that ``blocc.inner.choice.choose_oracles`` or ``blocc.problem`` lives in; None outside the package."""
    parts = full_name.split(".")
    if parts[0] != "blocc":
        return None
    if len(parts) == 1 or (not (SOURCE / parts[1]).is_dir() and not (SOURCE / f"{parts[1]}.py").is_file()):
        return "__init__.py"  # a public name of the package
    return f"{parts[1]}/" if (SOURCE / parts[1]).is_dir() else f"{parts[1]}.py"


def test_every_module_is_documented() -> None:
    assert len(ORDER) == len(set(ORDER))
    assert sorted(ORDER) == sorted({room_of(path) for path in MODULES})


def test_imports_go_one_way() -> None:
    wrong = [
        f"{name_of(path)}:{line} imports {name} from a room below"
        for path in MODULES
        for name, line in imports(path)
        if (room := target_room(name)) is not None
        and room != (here := room_of(path))
        and ORDER.index(room) >= ORDER.index(here)
    ]
    assert wrong == []


def test_applications_never_import_each_other() -> None:
    """They share the core, the kit and the networks; what two of them need is moved there."""
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in MODULES
        for name, line in imports(path)
        if room_of(path) in APPLICATIONS and target_room(name) in APPLICATIONS - {room_of(path)}
    ]
    assert wrong == []


def test_the_core_needs_numpy_scipy_and_jax_alone() -> None:
    allowed = NUMERICAL | sys.stdlib_module_names
    wrong = [
        f"{name_of(path)}:{line} imports {name}"
        for path in MODULES
        if room_of(path) in CORE and path != OPTIONAL_TYPES
        for name, line in imports(path)
        if name.partition(".")[0] not in allowed
    ]
    assert wrong == []


def test_jax_settings_are_left_alone() -> None:
    wrong = [
        f"{name_of(path)}:{node.lineno}"
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("config.update")
        and name_of(path) != "_lib/compilation_cache.py"  # set because the user asks for it
    ]
    assert wrong == []


def test_the_verdict_knows_nothing_of_the_descent() -> None:
    """What judges never uses what helped to descend: whatever the verdict imports, directly or not."""
    seen: set[str] = set()
    waiting = ["blocc.judge.examine", "blocc.judge.second_opinion"]
    while waiting:
        module = waiting.pop()
        path = SOURCE.parent / (module.replace(".", "/") + ".py")
        if module in seen or not path.is_file():
            continue
        seen.add(module)
        waiting += [part for name, _ in imports(path) for part in (name, name.rpartition(".")[0])]
    assert not [name for name in seen if name.split(".")[1] in ("outer", "run", "resume", "methods")]


def test_modules_stay_short() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in MODULES}
    assert {name: length for name, length in lengths.items() if length > LONGEST} == {}
