"""Attention mechanisms: score function, alignment and readout, with one head or several.

Read in this order: `memory` (keys, values and the state after earlier queries) and `masks`;
`attention`, the module that uses all others, and `multi_head`; `scores` (with dot products),
`additive_scores` and `relative_scores`; `alignments` (softmax and others) with
`local_alignment`, `monotonic_alignment` and `hard_alignment`; `readouts`;
`auxiliary_losses`; `positional_encoding`; `sentinel`; `config`, the config of a whole
mechanism; `edits`, which change weights of a trained model, and `edit_operators`, which mark them
in graphs. Import names from the module that defines them.
"""
