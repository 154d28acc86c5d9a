"""Roads as pictures and pages: ``road_figures``, ``road_page``, ``road_charts``, and those of estimates of trips."""
