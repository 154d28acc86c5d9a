"""The paper's tables and figures: each item has a module with its studies, its tables and its pictures."""
