"""The commands ``blocc examples list | copy``: the examples of the repository, which the package carries with it."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Annotated

import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import blocc
from blocc._lib.files import write_file
from blocc.cli.common import make_app
from blocc.errors import InputError

_ABOUT = """Examples to read, to run and to change.

[bold]Examples[/bold]

  blocc examples list
  blocc examples copy pricing
  blocc examples copy braess studies/"""


def examples_folder() -> Path:
    """Where the examples are: inside the installed package, or beside the source in a copy of the repository."""
    package = Path(blocc.__file__).parent
    return next(
        (folder for folder in (package / "examples", package.parents[1] / "examples") if folder.is_dir()), package
    )


def find_examples() -> dict[str, Path]:
    """All examples by their names."""
    folder = examples_folder()
    files = [*folder.glob("*.py"), *folder.glob("*.toml"), *folder.glob("gallery/*.py")]
    return {path.stem: path for path in sorted(files) if path.stem != "__init__"} if folder.name == "examples" else {}


def about(path: Path) -> str:
    """The first sentence of an example."""
    text = path.read_text(encoding="utf-8")
    words = ast.get_docstring(ast.parse(text)) if path.suffix == ".py" else text.lstrip("# ")
    return (words or "").partition("\n")[0]


def list_command() -> None:
    """List the examples, each with what it shows."""
    table = Table("name", "file", "what it shows", box=SIMPLE)
    root = examples_folder()
    for name, path in find_examples().items():
        table.add_row(name, path.relative_to(root).as_posix(), about(path))
    Console(highlight=False).print(table)


def copy_command(
    name: Annotated[str, typer.Argument(help="One of the names that `list` shows.", show_default=False)],
    folder: Annotated[Path, typer.Argument(help="Where to copy it to.")] = Path(),
) -> None:
    """Copy an example; a file that is there already is never written over."""
    found = find_examples()
    if name not in found:
        raise InputError(f"NAME {name!r} is no example; there are: {', '.join(found)}")
    wanted = [found[name]]
    text = found[name].read_text(encoding="utf-8")
    wanted += [other for other in found.values() if other != found[name] and f'"{other.name}"' in text]  # that it reads
    for path in wanted:
        if (folder / path.name).exists():
            raise InputError(f"{folder / path.name} is there already: give another folder, or move it away")
    for path in wanted:
        print(f"written: {write_file(folder / path.name, path.read_bytes(), InputError)}")


def build_examples_app() -> typer.Typer:
    """The typer application of these commands."""
    return make_app(_ABOUT, list_command, copy_command, bare=("list",))
