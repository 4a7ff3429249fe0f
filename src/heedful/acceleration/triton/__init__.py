"""Kernels in Triton. Imported only where there is Triton; `TRITON_INTERPRET=1` runs them on a CPU.

Reading order: `layer_norm` (the simplest), `feed_forward`, `cross_entropy`; softmax attention:
`blocks` and `attention`; additive attention: `additive_math`, `additive_score`,
`additive_gradients`, `additive_step`; decoding: `decoding_step`, `search`.
"""
