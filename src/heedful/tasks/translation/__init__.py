"""Translation of source into target texts.

Reading order: `task`, `translator` (with search by another library), `command`, `jobs` (what it
does), `files` (lines in and out), `sentences`, `html_sentences` and `documents` (sentences of
documents, and documents of their translations), `guided_alignment` and `distillation`.
"""
