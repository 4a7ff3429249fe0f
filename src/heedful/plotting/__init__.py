"""SVG charts and self-contained HTML pages; this package imports no torch."""
