"""A designed transport network as pictures (``design_figures``), a page (``design_page``), a PDF (``design_pdf``)."""
