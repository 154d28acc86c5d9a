"""What the source never does: run what a file says, or load objects out of one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "blocc"
MODULES = sorted(SOURCE.rglob("*.py"))
#: Modules that load objects, and thereby run what a file says.
FORBIDDEN_MODULES = {"pickle", "cPickle", "cloudpickle", "dill", "shelve", "marshal", "joblib", "yaml", "jsonpickle"}
#: XML of the standard library expands entities without end; nothing here reads XML.
FORBIDDEN_MODULES |= {"xml"}
FORBIDDEN_CALLS = {"eval", "exec", "compile", "__import__", "input", "os.system", "os.popen", "tempfile.mktemp"}
#: Functions of NumPy that load or write objects unless they are told not to.
WITH_PICKLE = {f"np.{name}" for name in ("load", "save", "savez", "savez_compressed", "lib.format.read_array")}
#: ``FILE:called``, each with its reason.
ALLOWED = {
    "__init__.py:import_module",  # modules of this package, named in a table there
    "problems/loading.py:spec.loader.exec_module",  # the user's own problem file, run because the user asks for it
    "studies/study.py:importlib.import_module",  # the function of a study that somebody runs; reading resolves none
}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keyword(call: ast.Call, name: str) -> object:
    found = [word.value for word in call.keywords if word.arg == name]
    return found[0].value if found and isinstance(found[0], ast.Constant) else None


def complaints(text: str, file: str) -> list[str]:
    """Everything in a module's source that is against the rules."""
    tree = ast.parse(text)
    found = []
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        found += [f"imports {name}" for name in names if name.partition(".")[0] in FORBIDDEN_MODULES]
    for called, call in calls(tree):
        last = called.rpartition(".")[2]
        if f"{file}:{called}" in ALLOWED:
            continue
        if called in FORBIDDEN_CALLS or last in ("exec_module", "import_module", "literal_eval"):
            found.append(f"calls {called}")
        if (
            called in ("np.load", "numpy.load", "np.lib.format.read_array")
            and keyword(call, "allow_pickle") is not False
        ):
            found.append(f"calls {called} without allow_pickle=False")
        if called in ("np.save", "np.savez", "np.savez_compressed") and keyword(call, "allow_pickle") is not False:
            found.append(f"calls {called} without allow_pickle=False")
        if last in ("run", "Popen", "call", "check_call", "check_output") and keyword(call, "shell") is not None:
            found.append(f"calls {called} with a shell")
        if called == "os.umask":
            found.append("changes the mask of the whole process")
    return found


def test_nothing_in_a_file_is_ever_executed() -> None:
    found = {name_of(path): complaints(path.read_text(encoding="utf-8"), name_of(path)) for path in MODULES}
    assert {name: wrong for name, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from pickle import loads",
        "import yaml",
        "eval('1')",
        "exec(text)",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "np.savez(path, x=x)",
        "subprocess.run('ls', shell=True)",
        "importlib.import_module(name)",
        "os.umask(0)",
    ],
)
def test_the_rules_notice(text: str) -> None:
    assert len(complaints(text, "some.py")) == 1


@pytest.mark.slow
def test_exceptions_are_still_needed() -> None:
    """An exception that nobody uses would only hide the next one."""
    used = {f"{name_of(path)}:{called}" for path in MODULES for called, _ in calls(ast.parse(path.read_text("utf-8")))}
    assert used >= ALLOWED
