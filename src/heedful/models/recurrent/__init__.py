"""Recurrent encoders and decoders, and where attention sits in a decoder (wirings).

Reading order, Bahdanau et al. first: `encoder`, `bridge` (first decoder state), `wiring` (attention
and cells in one step), `pre_output` (features of a step) and `decoder`. `decoder_parts` and
`config` build them. Beside the plain path: `decoder_variants` (experts, marginal posteriors,
CopyNet), `adaptive` and `deep_fusion` (wirings).
"""
