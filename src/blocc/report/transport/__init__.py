"""What becomes of a designed transport network: tables and maps on disk, pictures, and one page to read them on.

``tables.py`` writes everything (:func:`~blocc.report.transport.design_tables.write_design`), ``figures.py`` draws with
matplotlib, ``page.py`` writes the interactive page. The other modules hold what these share.
"""

from __future__ import annotations
