"""The items of the paper by name: each lives in a module of ``reproduction``, as its ``ITEM``."""

from __future__ import annotations

import importlib

from blocc.studies.item import Item

#: In the order of the paper. The pictures of an item are drawn by the module of the same name in reproduction.pictures.
MODULES = ("toy_surface", "toy_sensitivity", "gradient_of_v", "transport", "three_sensitivity", "svm", "complexity")

ITEMS: dict[str, Item] = {}
#: The module of each item, by the item's name.
MODULE_OF: dict[str, str] = {}
#: Modules that cannot be imported, and what they lack: an extra of the package that is not installed.
UNAVAILABLE: dict[str, str] = {}

for _module in MODULES:
    try:
        _item: Item = importlib.import_module(f"reproduction.{_module}").ITEM
    except ImportError as error:
        UNAVAILABLE[_module] = f"it needs {error.name or error}, which is not installed"
    else:
        ITEMS[_item.name] = _item
        MODULE_OF[_item.name] = _module
