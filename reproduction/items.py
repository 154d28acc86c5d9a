"""The items of the paper by name: each is ``ITEM`` of the module of that name."""

from __future__ import annotations

import importlib

from reproduction.item import Item, missing_package

#: In the order of the paper.
NAMES = (
    *("gradient_of_v", "assumptions", "equivalence", "theory", "epsilon", "toy_surface", "svm"),
    *("networks", "transport", "seville", "toy_sensitivity", "three_sensitivity", "complexity"),
)


def load_items() -> tuple[dict[str, Item], dict[str, str]]:
    """Every item that can be computed here, and for the others which package they lack."""
    items: dict[str, Item] = {}
    unavailable: dict[str, str] = {}
    for name in NAMES:
        try:
            items[name] = importlib.import_module(f"reproduction.{name}").ITEM
        except ImportError as error:
            package = missing_package(error)
            if package is None:
                raise
            unavailable[name] = f"it needs {package}, which is not installed"
    return items, unavailable
