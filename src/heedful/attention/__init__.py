"""Attention mechanisms: score function, alignment and readout, with one head or several.

Read in this order: `memory` (keys, values, mask and state), `attention` and `multi_head` (modules),
`scores` and its families, `alignments` and its families, `auxiliary_losses`, and `config` (the
config of a whole mechanism). Import names from the module that defines them.
"""
