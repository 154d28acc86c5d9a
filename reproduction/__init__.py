"""The paper's tables and figures: each module has an ``ITEM`` and the functions that its studies name."""
