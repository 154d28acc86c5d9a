"""The pages of the gallery, made by running examples/gallery: ``make gallery``, or ``NAME=braess`` for one.

A file is its docstring and cells that begin with ``# %%``, so that editors open it as a notebook too:

- docstring: the title, the question in a sentence, the table of leader and follower, the formula;
- ``# %%``: the problem and its solution, at most thirty lines;
- ``# %% Check``, ``# %% Picture`` (which leaves ``figure``) and ``# %% What breaks``, each with comments as its text.

What the cells print stands on the page. A test runs the files again and compares.
"""

from __future__ import annotations

import ast
import contextlib
import io
import os
import platform
import re
import sys
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[1]
EXAMPLES, PAGES = ROOT / "examples" / "gallery", ROOT / "docs" / "gallery"
MOST_LINES = 30  #: of code in the first cell
THUMBNAIL = (400, 250)
#: The order of the gallery's index; what is missing here comes last.
ORDER = (
    *("landscape", "own_oracle", "several_followers", "inverse_optimisation", "lp_pricing", "seville", "sioux_falls"),
    *(
        "braess",
        "electricity_bidding",
        "hyper_cleaning",
        "elastic_net",
        "forgiving_svm",
        "compare_methods",
        "gpu_batch",
        "garages",
    ),
)


@dataclass
class Cell:
    """A part of an example."""

    title: str
    text: str  #: its comments, as Markdown
    code: str
    line: int  #: of the file, where its code begins
    printed: str = ""


@dataclass
class Example:
    """A file of the gallery, taken apart."""

    name: str
    title: str
    about: str  #: Markdown: question, table, formula
    question: str
    cells: list[Cell] = field(default_factory=list)

    def cell(self, title: str) -> Cell | None:
        """The cell of this title."""
        return next((cell for cell in self.cells if cell.title == title), None)


def read(path: Path) -> Example:
    """Take a file apart."""
    text = path.read_text(encoding="utf-8")
    title, _, about = (ast.get_docstring(ast.parse(text)) or "").partition("\n\n")
    example = Example(path.stem, title.rstrip("."), about.strip(), " ".join(about.partition("\n\n")[0].split()))
    parts = re.split(r"^# %%(.*)\n", text, flags=re.MULTILINE)
    line = parts[0].count("\n") + 1
    for heading, body in zip(parts[1::2], parts[2::2], strict=True):
        lines, begin = body.splitlines(), line + 1
        words = []
        while lines and lines[0].startswith("#"):
            words.append(lines.pop(0).removeprefix("#").removeprefix(" "))
            begin += 1
        example.cells.append(Cell(heading.strip(), "\n".join(words), "\n".join(lines).strip("\n"), begin))
        line += body.count("\n") + 1
    return example


def run(path: Path, example: Example) -> dict[str, Any]:
    """Run the cells in order, keep what they print, and return what they leave behind."""
    module = sys.modules[f"gallery_{path.stem}"] = ModuleType(f"gallery_{path.stem}")  # dataclasses look themselves up
    names = module.__dict__
    names["__file__"] = str(path)
    for cell in example.cells:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile("\n" * (cell.line - 1) + cell.code, str(path), "exec"), names)
        cell.printed = out.getvalue().rstrip()
    return names


def machine() -> str:
    """The hardware and the versions, in one line."""
    import jax

    device = jax.devices()[0]
    model = (
        re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text()) if Path("/proc/cpuinfo").exists() else None
    )
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    where = f"{device.device_kind}, " if device.platform != "cpu" else ""
    words = model[1] if model else platform.processor() or platform.machine()
    return (
        f"{where}{cores} core{'s' * (cores != 1)} of {words}, Python {platform.python_version()}, jax {version('jax')}"
    )


def fenced(kind: str, text: str) -> str:
    """A block of a page."""
    return f"```{kind}\n{text}\n```\n"


def page(example: Example, seconds: float, alternative: str) -> str:
    """The page of an example that has been run."""
    first = example.cells[0]
    source = f"`blocc examples copy {example.name}` writes this page's program to a file of your own."
    parts = [f"# {example.title}\n", example.about + "\n", "## Solve it\n", first.text, fenced("python", first.code)]
    if first.printed:
        parts.append(fenced("text", first.printed))
    picture = example.cell("Picture")
    parts += [f"![{alternative}]({example.name}.png)\n"]
    for title in ("Check", "What breaks"):
        cell = example.cell(title)
        if cell is None:
            continue
        parts += [f"## {title}\n", cell.text + "\n", fenced("python", cell.code) if cell.code else ""]
        if cell.printed:
            parts.append(fenced("text", cell.printed))
    parts += ["## Time and hardware\n", f"{seconds:.1f} s in all, compilation included: {machine()}. {source}\n"]
    if picture is not None:
        code = re.sub(r"\n(?=.)", "\n    ", picture.code)
        parts.append(f'??? note "How the picture is drawn"\n\n    ```python\n    {code}\n    ```\n')
    return "\n".join(part for part in parts if part)


def thumbnail(image: bytes) -> bytes:
    """The picture, small and with few colours."""
    from PIL import Image, ImageOps

    picture = Image.open(io.BytesIO(image)).convert("RGB")
    small = ImageOps.pad(picture, THUMBNAIL, method=Image.Resampling.LANCZOS, color="white")
    out = io.BytesIO()
    small.quantize(64).save(out, format="png", optimize=True)
    return out.getvalue()


def compressed(image: bytes) -> bytes:
    """The picture with at most 256 colours."""
    from PIL import Image

    out = io.BytesIO()
    Image.open(io.BytesIO(image)).convert("RGB").quantize(256).save(out, format="png", optimize=True)
    return out.getvalue()


def make(path: Path) -> None:
    """Run an example and write its page, picture and thumbnail."""
    example = read(path)
    began = time.perf_counter()
    left = run(path, example)
    seconds = time.perf_counter() - began
    out = io.BytesIO()
    left["figure"].savefig(out, format="png", dpi=110)
    picture = example.cell("Picture")
    alternative = " ".join((picture.text if picture else "").split()) or example.title
    (PAGES / f"{example.name}.png").write_bytes(compressed(out.getvalue()))
    (PAGES / f"{example.name}-small.png").write_bytes(thumbnail(out.getvalue()))
    (PAGES / f"{example.name}.md").write_text(page(example, seconds, alternative), encoding="utf-8")
    print(f"{example.name}: {seconds:.1f} s", flush=True)


def index() -> str:
    """The page with all cards."""
    files = {path.stem: path for path in sorted(EXAMPLES.glob("*.py")) if (PAGES / f"{path.stem}.md").exists()}
    cards = []
    for name in sorted(files, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        example = read(files[name])
        plain = re.sub(r"[`*$]", "", example.question)
        cards.append(f"[![]({name}-small.png)<strong>{example.title}</strong><span>{plain}</span>]({name}.md)\n")
    text = (
        "# Gallery\n\nEvery page asks one question, answers it in at most thirty lines, prints the certificate, and\n"
        "checks the answer against something that is not blocc. `make gallery` runs them all again.\n\n"
    )
    return text + '<div class="gallery" markdown="1">\n\n' + "\n".join(cards) + "\n</div>\n"


def main(names: list[str]) -> None:
    """Run the examples of these names, or all."""
    PAGES.mkdir(exist_ok=True)
    for path in [EXAMPLES / f"{name}.py" for name in names] or sorted(EXAMPLES.glob("*.py")):
        make(path)
    (PAGES / "index.md").write_text(index(), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
