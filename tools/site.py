"""What the site adds to the pages: files of the repository's root, the API reference, and formulas as MathML.

MkDocs calls these functions by their names (mkdocs.yml, ``hooks``).
"""

from __future__ import annotations

import html
import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(Path(__file__).parent))
from gallery import ORDER  # noqa: E402

#: Pages of the site that are files of the repository's root.
FROM_ROOT = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md", "SECURITY.md": "security.md"}
#: The doors of the package, each a page of the API reference, with the sentence it begins with.
DOORS = {
    "blocc": "The problem, the ways to solve it, what comes back, and how it is checked.",
    "blocc.transport": "Which links to build, and how large, when travellers choose freely.",
    "blocc.roads": "Traffic assignment, links to widen, tolls, trips from counts.",
    "blocc.cvxpy": "Followers written in CVXPY.",
    "blocc.power": "Markets of electricity and the bids of those who sell there.",
    "blocc.svm": "Support vector machines that choose whom to forgive.",
    "blocc.methods": "What a method of your own is made of, and the published methods with how to cite them.",
    "blocc.inner": "What an inner oracle of your own is made of.",
    "blocc.problems.textbook": "Problems with known answers.",
}
MATH = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)


#: A line of a formula in the page's source that begins like this begins a line on the site.
NEW_ROW = re.compile(r"\n(?=\\quad|\\text|\\;|\+)")


def on_config(config: Any) -> Any:
    """Put the API reference, the gallery, and pages that nobody has named, among the guides, into the navigation."""
    sections = {name: pages for part in config.nav for name, pages in part.items()}
    named = {page for pages in sections.values() for page in pages}
    sections["Guides"] += sorted({path.name for path in (ROOT / "docs").glob("*.md")} - named)
    sections["Reference"] += [page_of(door) for door in doors()]
    pages = [f"gallery/{name}.md" for name in ORDER if (ROOT / "docs" / "gallery" / f"{name}.md").exists()]
    if pages:
        config.nav.insert(1, {"Gallery": ["gallery/index.md", *pages]})
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in ``docs``."""
    for name, target in FROM_ROOT.items():
        if (ROOT / name).exists():
            files.append(File.generated(config, target, content=(ROOT / name).read_text(encoding="utf-8")))
    for door in doors():
        files.append(File.generated(config, page_of(door), content=reference(door)))
    return files


def on_template_context(context: Any, template_name: str, config: Any) -> Any:
    """Relative links on the page for what is not found, unless the site's address is known."""
    if template_name == "404.html" and not config.site_url:
        context["base_url"] = "."
    return context


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links between the root and ``docs``, as they stand on the site."""
    for name, target in FROM_ROOT.items():
        markdown = markdown.replace(f"](../{name}", f"]({target}").replace(f"]({name}", f"]({target}")
    if page.file.src_uri in FROM_ROOT.values():
        markdown = markdown.replace("](docs/", "](")
    return markdown


def on_page_content(html_text: str, **_: Any) -> str:
    """Formulas as MathML, which browsers draw without any script."""

    def mathml(found: re.Match[str]) -> str:
        text = html.unescape(found[3]).strip()
        if found[2] == "(":
            return convert(text)
        text = re.sub(r"\\(min|max)_", r"\\\1\\limits_", text)
        # Browsers break no formula, so its parts stand below each other.
        return "".join(convert(row, display="block") for row in NEW_ROW.split(text))

    return MATH.sub(mathml, html_text)


def doors() -> list[str]:
    """The doors that this source has."""
    return [name for name in DOORS if (ROOT / "src" / name.replace(".", "/")).exists()]


def page_of(door: str) -> str:
    """The page of a door."""
    return f"api/{door.replace('.', '-')}.md"


def reference(door: str) -> str:
    """A page with every public name of a door, each rendered from its docstring.

    That of ``blocc.methods`` ends with the published methods, which are called by their names: what each is, and how
    to cite it.
    """
    module = import_module(door)
    lines = [f"# `{door}`", "", DOORS[door], ""]
    for name in sorted(module.__all__, key=str.lower):
        found = getattr(module, name)
        home, own = getattr(found, "__module__", ""), getattr(found, "__qualname__", None)
        if own is None or not str(home).startswith("blocc"):
            continue  # a plain value, such as the version
        lines += [f"::: {home}.{own}", "    options:", f'      heading: "{name}"', f'      toc_label: "{name}"', ""]
    if door == "blocc.methods":
        registry = import_module("blocc.methods.registry")
        for name, kind in {**registry.METHODS, **registry.SAMPLED}.items():
            lines += [f"::: {kind.__module__}.{kind.__qualname__}", "    options:", "      members: false"]
            lines += [f'      heading: "{kind.title}"', f'      toc_label: "{name}"', ""]
    return "\n".join(lines)
