"""Training and decoding on a CPU.

Reading order: `training` (dropout and the loss), `packed_linear` (products of few rows),
`decoding_state` (states without needless copies), `transformer_step` (one position of standard
Transformer layers with caches that a beam shares), `transformer_stack` (the modules that use it).
"""
