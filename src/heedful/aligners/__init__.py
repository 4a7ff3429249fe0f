"""Word alignment of parallel text: `links`, then IBM Model 1, fast_align and the HMM.

`corpus` has the batches and the translation table they share, `models` the models,
`training` expectation maximization and both directions of a corpus.
"""
