"""Attention layers with the interfaces of Keras and torch.nn, and any score and alignment.

`Attention`, `AdditiveAttention` and `MultiHeadAttention` are called as in Keras;
`MultiheadAttention` has the signature and the state dict of torch.nn. Importing this package
imports `heedful.attention` and nothing of models, data or training. Reading order: `mechanism`,
`keras_attention`, `keras_multi_head`, `torch_multihead`.
"""

from heedful.nn.keras_attention import AdditiveAttention, Attention
from heedful.nn.keras_multi_head import MultiHeadAttention
from heedful.nn.torch_multihead import MultiheadAttention

__all__ = ["AdditiveAttention", "Attention", "MultiHeadAttention", "MultiheadAttention"]
