"""Attention mechanisms: score function, alignment and readout, with one head or several.

Read in this order: `memory` (keys, values and the state after earlier queries) and `masks`;
`attention`, the module that uses all others, and `multi_head`; `scores` with `additive_scores`,
`dot_product_scores` and `relative_scores`; `alignments` (softmax and others) with
`local_alignment`, `monotonic_alignment`, `hard_alignment` and `fixed_alignment`; `readouts`;
`auxiliary_losses`; `positional_encoding`; `sentinel`; and `config`, the config of a whole
mechanism. Import names from the module that defines them.
"""
