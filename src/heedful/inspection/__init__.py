"""Inspection: pictures of where a model looked.

Every picture is drawn from an `AttentionMap`: `terminal.terminal_heatmap` in characters,
`heatmap.svg` for papers and pages, `report.html` as a page that answers to the pointer and
`report.snippet` for notebooks. A picture costs no import of torch.
"""
