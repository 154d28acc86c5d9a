"""The pages are true: their code runs, prints what they show, and names everything there is.

Blocks of one page share a namespace and a temporary folder, and run in order.

- ``python``: executed. If its first line is a comment such as ``# harbour.py``, it is also saved under that name.
- ``text`` directly after a ``python`` block: exactly what that block printed, by the rule of :func:`normalised`.
- a call in prose, such as ``solve(toy, gamma=20.0)`` between backticks: executed where all of its names are known
  there, those of the page so far and public ones. Signatures are none, and neither is anything with ``...``.
- ``console``: each line ``$ blocc ...`` is run and must exit with code 0; lines below it, if any, are its output.

A README runs in a folder that also holds examples/, and so do the pages.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import inspect
import io
import re
import runpy
import shlex
import shutil
import sys
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import blocc
import blocc.svm
from blocc.cli.commands import build_app
from blocc.cli.common import EXIT_CODES
from blocc.errors import OptionError
from blocc.svm import BilevelSVC
from blocc.transport import Assignment, Design, DesignOptions, FillRules, Start, WhatIf, design_network

ROOT = Path(__file__).parents[1]
PAGES = [page for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))] if page.exists()]
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
TRANSPORT = REFERENCE.partition("\n## Transport\n")[2].partition("\n## ")[0]

NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?(?!\w)", re.IGNORECASE)
RELATIVE = 1e-3  #: numbers that differ by less than this share are the same
NOISE = 1e-4  #: numbers below this are residuals, all of them small enough for the default tolerance


@dataclass(frozen=True)
class Block:
    kind: str
    text: str
    line: int  #: of its first line of text
    follows: bool  #: nothing but blank lines stands between this block and the one before


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    found: list[Block] = []
    lines: list[str] | None = None
    prose: list[str] = []
    kind, start, touching = "", 0, False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), start=1):
        if lines is None and line.startswith("```"):
            found += calls_in(prose, number)
            kind, start, lines, prose = line[3:].strip(), number + 1, [], []
        elif lines is not None and line.startswith("```"):
            found.append(Block(kind, "\n".join(lines), start, touching))
            lines, touching = None, True
        elif lines is not None:
            lines.append(line)
        else:
            prose.append(line)
            touching = touching and not line.strip()
    assert lines is None, f"{page.name}: the block at line {start} never ends"
    return found + calls_in(prose, start)


def calls_in(prose: list[str], end: int) -> list[Block]:
    """The calls between backticks in lines of prose, which end before line ``end``."""
    found = []
    for code in re.findall(r"(?<!`)`([^`]+)`(?!`)", "\n".join(prose)):
        text = " ".join(code.replace("\\|", "|").split())
        try:
            nodes = list(ast.walk(ast.parse(text, mode="eval")))
        except SyntaxError:
            continue
        hidden = "..." in text
        named = any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not (node.args or node.keywords)
            for node in nodes
        )  # a method of something that the sentence names
        if any(isinstance(node, ast.Call) for node in nodes) and not hidden and not named:
            found.append(Block("call", text, end, False))
    return found


def run_call(block: Block, namespace: dict[str, Any], where: str) -> bool:
    """Execute a call in prose where its names are known, and say whether they were."""
    known = {"np": np, **{name: getattr(blocc, name) for name in blocc.__all__}, **vars(builtins), **namespace}
    names = {node.id for node in ast.walk(ast.parse(block.text)) if isinstance(node, ast.Name)}
    if not names <= set(known) or names & {"cache_compilations"}:  # which would change all later tests
        return False
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            eval(compile(block.text, where, "eval"), known)
    except Exception as error:
        raise AssertionError(f"{where} says `{block.text}`, which fails: {error}") from error
    return True


def normalised(text: str) -> tuple[str, list[float]]:
    """The words of an output and its numbers, apart.

    What depends on the machine is taken out: seconds, and counts of evaluations and iterations. White space is
    collapsed, because the width of a number changes that of its column.
    """
    text = re.sub(r"\d[\d.e+-]* (m?s|seconds)\b", r"<time> \1", text)
    text = re.sub(r"\d+ (evaluations|iterations)\b", r"<count> \1", text)
    numbers = [float(match) for match in NUMBER.findall(text)]
    words = " ".join(NUMBER.sub(" # ", text).split())
    # "[ 1.5" and "[1.5" are the same list.
    return re.sub(r"([\[(]) | ([\])])", r"\1\2", words), numbers


def same(shown: float, printed: float) -> bool:
    size = max(abs(shown), abs(printed))
    return size < NOISE or abs(shown - printed) <= RELATIVE * size


def assert_same_output(shown: str, printed: str, where: str) -> None:
    words_shown, numbers_shown = normalised(shown)
    words_printed, numbers_printed = normalised(printed)
    assert words_shown == words_printed, f"{where} shows\n{shown}\nbut the code prints\n{printed}"
    for one, other in zip(numbers_shown, numbers_printed, strict=True):
        assert same(one, other), f"{where} shows {one:g}, but the code prints {other:g}:\n{printed}"


def run_python(block: Block, namespace: dict[str, Any], where: str) -> str:
    named = re.match(r"# (\w+\.py)\n", block.text)
    if named:
        Path(named[1]).write_text(block.text + "\n", encoding="utf-8")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile("\n" * (block.line - 1) + block.text, where, "exec"), namespace)
    return printed.getvalue()


def run_console(block: Block, where: str) -> None:
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)
    for part in parts[1:]:
        command, _, shown = part.partition("\n")
        words = shlex.split(command, comments=True)
        if words[0] != "blocc":
            continue
        # In this process, which has imported and compiled most of it; tests/cli run commands as processes.
        done = CliRunner().invoke(build_app(), words[1:])
        assert done.exit_code == 0, f"{where}: {command} exits {done.exit_code}\n{done.output}{done.exception!r}"
        if shown.strip():
            assert_same_output(shown, done.stdout, f"{where}, {command!r}")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_runs_as_printed(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.parent == ROOT or any(block.kind == "console" for block in blocks(page)):
        shutil.copytree(ROOT / "examples", tmp_path / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "120")
    namespace: dict[str, Any] = {"__name__": "page"}
    printed: str | None = None
    for block in blocks(page):
        where = f"{page.name}, line {block.line}"
        if block.kind == "python":
            printed = run_python(block, namespace, where)
        elif block.kind == "call":
            run_call(block, namespace, f"{page.name}, before line {block.line}")
        elif block.kind == "text" and block.follows and printed is not None:
            assert_same_output(block.text, printed, where)
            printed = None
        else:
            printed = None
            if block.kind == "console":
                run_console(block, where)


def test_calls_in_prose_are_executed() -> None:
    found = calls_in(["Write `solve(problem,", "gamma=3)`, not `f(x)` or `g(...)`, `x <= 0`."], 1)
    assert [block.text for block in found] == ["solve(problem, gamma=3)", "f(x)"]
    assert not run_call(found[1], {"x": 0.0}, "here")
    assert run_call(found[1], {"x": 0.0, "f": abs}, "here")
    with pytest.raises(AssertionError, match=r"here says `f\(x\)`, which fails: no such option"):
        run_call(found[1], {"x": OptionError("no such option"), "f": _throw}, "here")


def _throw(error: Exception) -> None:
    raise error


# --- the rule of comparison itself -----------------------------------------------------------------------------------
def test_comparison_forgives_time_and_rounding() -> None:
    assert_same_output("x [ 2.25 1.5 ]  gap 3.9e-05, 0.6 s", "x [2.250042 1.5]  gap 1.1e-05, 12.4 s", "here")
    assert_same_output("89 evaluations, 1 s", "103 evaluations, 2 s", "here")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [("x 2.25", "x 2.26"), ("gap 1e-5", "gap 1e-3"), ("converged", "stalled"), ("[1. 2.]", "[1. 2. 3.]"), ("", "a")],
)
def test_comparison_notices_differences(shown: str, printed: str) -> None:
    with pytest.raises(AssertionError):
        assert_same_output(shown, printed, "here")


# --- completeness -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", blocc.__all__)
def test_reference_names_everything_public(name: str) -> None:
    assert re.search(rf"`(class |\w+\()?{re.escape(name)}\b", REFERENCE), f"docs/reference.md does not explain {name}"


@pytest.mark.parametrize("option", fields(blocc.Options), ids=lambda option: option.name)
def test_reference_names_every_option_with_its_default(option: Any) -> None:
    row = re.search(rf"^\| `{option.name}` \| `(.+?)` \|", REFERENCE, flags=re.MULTILINE)
    assert row, f"docs/reference.md has no row for the option {option.name}"
    assert eval(row[1]) == option.default


@pytest.mark.parametrize("status", blocc.Status, ids=lambda status: status.name)
def test_reference_names_every_status_with_its_exit_code(status: blocc.Status) -> None:
    row = f"| `{status.name}` | `{status.value}` | {EXIT_CODES[status]} |"
    assert row in REFERENCE, f"docs/reference.md lacks the row {row}"


@pytest.mark.parametrize(
    "kind", [blocc.Result, blocc.Certificate, blocc.BilevelProblem], ids=lambda kind: kind.__name__
)
def test_reference_names_every_field(kind: Any) -> None:
    for field in fields(kind):
        assert f"| `{field.name}` |" in REFERENCE, f"docs/reference.md has no row for {kind.__name__}.{field.name}"


def test_reference_names_every_history_column() -> None:
    for column in blocc.History.columns:
        assert f"| `{column}` |" in REFERENCE


def test_reference_names_every_option_of_a_support_vector_machine_with_its_default() -> None:
    text = REFERENCE.partition("\n## Support vector machines\n")[2].partition("\n## ")[0]
    for name, default in BilevelSVC().get_params().items():
        row = re.search(rf"^\| `{name}` \| `(.+?)` \|", text, flags=re.MULTILINE)
        assert row, f"docs/reference.md has no row for the option {name}"
        assert eval(row[1]) == default
    for name in blocc.svm.__all__:
        assert f"`{name}" in text, f"docs/reference.md does not explain blocc.svm.{name}"


def test_reference_names_every_option_of_a_design_with_its_default() -> None:
    defaults = {
        name: p.default
        for name, p in inspect.signature(design_network).parameters.items()
        if name not in ("network", "options")
    }
    defaults |= {field.name: field.default for part in (DesignOptions, FillRules) for field in fields(part)}
    for name, default in defaults.items():
        row = re.search(rf"^\| `{name}` \| `(.+?)` \|", TRANSPORT, flags=re.MULTILINE)
        assert row, f"docs/reference.md has no row for the option {name}"
        assert eval(row[1]) == default


def test_reference_names_every_field_of_a_design() -> None:
    names = [field.name for field in fields(Design)] + [
        name for part in (Assignment, WhatIf, Start) for name in part._fields
    ]
    for name in names:
        assert f"`{name}`" in TRANSPORT, f"docs/reference.md does not explain {name}"


@pytest.mark.slow
def test_the_transport_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["transport.py"])
    runpy.run_path(str(ROOT / "examples" / "transport.py"), run_name="__main__")
    assert {"town.json", "links.csv", "report.html"} <= {path.name for path in Path("runs/town").iterdir()}


def test_the_svm_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(ROOT / "examples" / "svm.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert "A global optimum" in printed
    assert len(re.findall(r"sample \d+: \w+, forgiven \d", printed)) == 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link or link.startswith("mailto:"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        assert target.exists(), f"{page.name} links to {link}, which does not exist"
        if anchor and target.suffix == ".md":
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), flags=re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
            assert anchor in anchors, f"{page.name} links to {link}, but {target.name} has no such heading"
