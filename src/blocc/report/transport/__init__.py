"""A designed transport network as files: tables, pictures, a page and a document.

``design_tables`` writes everything (:func:`~blocc.report.transport.design_tables.write_design`), ``design_figures``
draws with matplotlib, ``design_page`` makes the interactive page, ``design_pdf`` the document for print. The other
modules of a design hold what these share.
"""
