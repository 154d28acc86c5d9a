"""Items that take long to compute are tried by ``make test-slow`` alone."""

from __future__ import annotations

import pytest

#: Fixtures that compute a whole item at reduced size.
COMPUTED = {"three", "networks", "sensitivity", "surface", "rows", "theorems"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if COMPUTED & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
