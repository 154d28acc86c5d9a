"""Assignments and designs of roads as files: tables, layers for a GIS, pictures and a page.

``road_files`` writes and reads everything, ``road_tables`` has the rows, ``road_figures`` draws with matplotlib, and
``road_page`` makes the interactive page with the charts of ``road_charts``.
"""
