"""Copy and generate (code, 12 minutes).

A pointer-generator mixes p_gen over the vocabulary with the attention weights over the source:
gate * p_gen(w) + (1 - gate) * (sum of the weights of w in the source). Source words beyond the
vocabulary have ids from len(p_gen) on; the result has `size` entries.
"""

import torch


def mix(p_gen, gate, weights, source_ids, size):
    """Return a distribution over `size` words."""
    copied = (1 - gate) * weights  # blank
    out = torch.nn.functional.pad(gate * p_gen, (0, size - len(p_gen)))  # blank
    return out.index_add(0, source_ids, copied)  # blank
