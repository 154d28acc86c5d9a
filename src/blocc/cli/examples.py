"""What ``blocc examples list | copy`` do: the examples of the repository, which the package carries with it.

Nothing here needs typer or rich.
"""

from __future__ import annotations

import ast
from pathlib import Path

import blocc
from blocc._lib.files import write_file
from blocc.errors import InputError


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


def print_examples() -> None:
    """List the examples, each with what it shows."""
    root = examples_folder()
    rows = [(name, path.relative_to(root).as_posix(), about(path)) for name, path in find_examples().items()]
    names, files = (max((len(row[column]) for row in rows), default=0) for column in (0, 1))
    for name, file, words in rows:
        print(f"{name:<{names}}  {file:<{files}}  {words}")


def copy_example(name: str, folder: Path = Path()) -> None:
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
