"""Assignments, designs and estimates of trips as files: tables, layers for a GIS, pictures and a page.

``road_files`` writes and reads everything, ``road_tables`` has the rows, ``road_figures`` draws with matplotlib, and
``road_page`` makes the interactive page with the charts of ``road_charts``. Estimates of trips have ``estimate_files``,
``estimate_figures`` and ``estimate_page``.
"""
