"""Faster equivalents of plain code: kernels of ops, and replacements of modules.

Nothing below this package mentions it; deleting it costs time and memory, never results. Invariant:
a kernel or a replacement matches the plain code up to rounding.

Reading order: `registry` (which module is replaced by what, in training and in inference),
`kernels` (which op has which kernel), `chunked_attention` and `rnn_layers` (kernels for any
device), `deferred_log_probs` (log-probabilities that the loss does not need), `transformer_step`
(decoding steps, with back ends for CPUs and GPUs), then `cpu`, `cuda` and `triton`, each with an
order of its own. `precision` converts parameters to
narrower types, `ct2` hands a model to CTranslate2, and `tuning` holds every threshold with its
measurement.
"""
