"""Docstrings as the site shows them: roles become code, lists of names become lists, ``#:`` explains a field."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr):`~?([^`]+)`")
NAMED = re.compile(r"^(\w+): (.*)")
FIELD = re.compile(r"#:\s*(.+)")


def as_markdown(text: str) -> str:
    """A docstring's text in Markdown."""
    text = ROLE.sub(r"`\1`", text)
    lines, out = text.splitlines(), []
    for line in lines:
        found = NAMED.match(line)
        if found and found[1] not in ("Note", "Example"):
            if out and out[-1] and not out[-1].startswith(("- ", "  ")):
                out.append("")
            out.append(f"- `{found[1]}`: {found[2]}")
        else:
            out.append(line)
    return "\n".join(out)


class Docstrings(griffe.Extension):
    """What Griffe calls for everything that it finds."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Mend a docstring, and give fields the comment that explains them."""
        if isinstance(obj, griffe.Attribute) and obj.docstring is None:
            explained = field_comment(obj) or member_text(obj)
            if explained:
                obj.docstring = griffe.Docstring(explained, parent=obj)
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)


def member_text(obj: griffe.Attribute) -> str:
    """The text that a member of an enumeration stands for, where that is a sentence."""
    bases = [str(base) for base in obj.parent.bases] if isinstance(obj.parent, griffe.Class) else []
    value = str(obj.value)
    return value[1:-1] if "Enum" in bases and value[:1] in "\"'" and " " in value else ""


def field_comment(obj: griffe.Attribute) -> str:
    """The ``#:`` comment on the line of an attribute, or the lines of them just above it."""
    if obj.lineno is None or not obj.lines_collection or obj.filepath not in obj.lines_collection:
        return ""
    lines = obj.lines_collection[obj.filepath]
    beside = FIELD.search(lines[(obj.endlineno or obj.lineno) - 1])
    if beside:
        return beside[1]
    above = []
    for line in reversed(lines[: obj.lineno - 1]):
        if not line.strip().startswith("#:"):
            break
        above.insert(0, line.strip()[2:].strip())
    return " ".join(above)
