"""Translation of source into target texts.

Reading order: `task`, `evaluation`, `translator`, `text_backend` (search by another library),
`command`, `files` (lines in and out), `guided_alignment` and `default_recipe`.
"""
