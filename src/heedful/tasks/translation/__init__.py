"""Translation of source into target texts.

Reading order: `task`, `evaluation`, `translator`, `text_backend` (search by another library),
`command`, `files` (lines in and out), `sentences`, `html_sentences` and `documents` (sentences of
documents, and documents of their translations), `guided_alignment` and `default_recipe`.
"""
