"""Translation of source into target texts.

Reading order: `task`, `translator` (with search by another library), `command`, `jobs` (what it
does), `files` (lines in and out), `sentences` (of texts and of HTML) and `documents` (with the
translations of their sentences), `guided_alignment` and `distillation`.
"""
