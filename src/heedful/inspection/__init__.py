"""Inspection: pictures of where a model looked.

Every picture is drawn from an `AttentionMap`: `terminal.terminal_heatmap` in characters,
`heatmap.render_svg` for papers and pages, `report.render_html` as a page that answers to the pointer and
`report.render_notebook_html` for notebooks. A picture costs no import of torch.
"""
