"""A designed transport network as files: tables, pictures and a page.

``design_tables`` writes everything (:func:`~blocc.report.transport.design_tables.write_design`), ``design_figures``
draws with matplotlib, ``design_page`` makes the interactive page. The other modules hold what these share.
"""
