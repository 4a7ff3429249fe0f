"""Recurrent encoders and decoders, and where attention sits in a decoder (wirings).

Reading order, Bahdanau et al. first: `encoder`, `bridge` (first decoder state), `wiring` (attention
and cells in one step), `decoder_parts` (features of a step, and what builds the parts) and
`decoder`. `config` builds all of them. Beside the plain path: `adaptive` (wirings with cell
states).
"""
