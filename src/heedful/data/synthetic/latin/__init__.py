"""Latin sentences of a small grammar and their English, generated without any files.

Read `morphology` (forms of words), `lexicon` (the words, from .tsv files), `syntax` (phrases,
clauses, sentences with two readings) and `corpus` (which sentence is sampled next).
"""
