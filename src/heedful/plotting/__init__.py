"""SVG charts and self-contained HTML pages; this package imports no torch.

Reading order: `svg` (elements, colors and files), `axes`, `charts`, `raster` (images as pixels)
and `html` (pages); pages that run a model: `page_graphs` and `page_runner`.
"""
