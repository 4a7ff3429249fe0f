"""SVG charts and self-contained HTML pages; this package imports no torch.

Reading order: `svg` (elements and colors), `axes`, `charts`, `raster` (images as pixels), `html`
(pages) and `figure_files` (SVG or PNG).
"""
