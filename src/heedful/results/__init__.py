"""Published results, reproduced by one command each: `heedful reproduce NAME`.

A result is a YAML file in this package. Reading order: `config` (the file), `preparation` (its
data), `runs` (training and evaluation, by the machinery of `comparison`), `summary` (means,
intervals, verdicts and claims), `pages`.
"""
