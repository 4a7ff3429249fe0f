"""Training and decoding on a CPU.

Reading order: `training` (dropout and the loss), `packed_linear` (products of few rows),
`decoding_state` (states without needless copies), `unpadding` (whole sequences without padding),
`transformer_stack` (Transformer layers with packed weights, and caches that a beam shares).
"""
