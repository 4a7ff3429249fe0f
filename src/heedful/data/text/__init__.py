"""Text as data: pairs of texts, labeled and tagged texts, running text.

Reading order: `pair_dataset` (pairs as token ids), `pair_files` with `table_files`, `conll_files`,
`columnar_files` and `translation_memories` (formats of files), `example_formats` (what a task
reads), `filtering`, `mixing` and `held_out`, `batching` and `token_stream` (what a model gets);
`sharded_dataset` and `dataset_builder` with `corpus_passes` hold corpora larger than memory.
"""
