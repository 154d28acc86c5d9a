"""Answers about power systems as files: tables, arrays, a picture and a page.

``power_files`` writes and reads everything, ``power_tables`` has the rows, ``power_layout`` places the buses,
``power_figures`` draws with matplotlib, and ``power_page`` makes the interactive page with ``power_charts``.
"""
