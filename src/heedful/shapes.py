"""Shape annotations: the letters of a shape, and aliases for shapes that have a name.

    *B  any leading dimensions    B  batch rows           N  vocabulary size
    T   target length (queries)   S  source length (keys) H  heads
    Q   size of a query           K  size of a key        V  size of a value
    A   hidden size of a score    D  size of a state      E  size of an embedding

`Float[Tensor, "*B T Q"]` is checked on each call in tests, where jaxtyping is installed; without
jaxtyping the annotations cost nothing. In an alias `#` marks a dimension that may be 1.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped
    except ImportError:

        class _Unchecked:
            def __class_getitem__(cls, item: object) -> type:
                return cls

        Bool = Float = Int = Shaped = _Unchecked

Queries: TypeAlias = Float[Tensor, "*B T Q"]
Keys: TypeAlias = Float[Tensor, "*B S K"]
Values: TypeAlias = Float[Tensor, "*B S V"]
Scores: TypeAlias = Float[Tensor, "*B T S"]
Weights: TypeAlias = Float[Tensor, "*B T S"]
Mask: TypeAlias = Bool[Tensor, "*#B #T S"]
"""True where a query may attend."""
AnyMask: TypeAlias = Tensor | None
"""A mask as a caller may give it: None, (*B, S) or (*B, T, S); what gets it checks it."""
Context: TypeAlias = Float[Tensor, "*B T V"]
TargetMask: TypeAlias = Bool[Tensor, "*B T"]
"""True for real targets, False for padding."""
PerQuery: TypeAlias = Float[Tensor, "*B T"]
"""One number for each query or target."""
PerPosition: TypeAlias = Float[Tensor, "*B S"]
"""One number for each source position."""
Scalar: TypeAlias = Float[Tensor, ""]
Losses: TypeAlias = Mapping[str, Scalar]
"""Named losses of a batch, each a sum over its targets."""
TokenIds: TypeAlias = Int[Tensor, "B T"]
Positions: TypeAlias = Int[Tensor, "B T"]
"""The position of each token in its sequence."""
HiddenStates: TypeAlias = Float[Tensor, "B T D"]
"""Inputs or outputs of a Transformer layer."""
Lengths: TypeAlias = Int[Tensor, "B"]
StepTokens: TypeAlias = Int[Tensor, "B"]
"""The token that each row reads at one step."""
SourceMask: TypeAlias = Bool[Tensor, "B S"]
"""True for real source positions, False for padding."""
LayerInputs: TypeAlias = Float[Tensor, "B S E"]
LayerOutputs: TypeAlias = Float[Tensor, "B S D"]
Embedded: TypeAlias = Float[Tensor, "B E"]
"""The embedding that each row reads at one step."""
Hidden: TypeAlias = Float[Tensor, "B D"]
"""One hidden state for each row."""
SourceTokens: TypeAlias = Int[Tensor, "B S ..."]
"""One token for each position, or a word and its characters: (B, S, 1 + C)."""
SourceInputs: TypeAlias = Shaped[Tensor, "B ..."]
"""Tokens of texts (B, S); of images pixels (B, C, H, W) or features of cells (B, S, C)."""
SourceStates: TypeAlias = Float[Tensor, "B S V"]
Summary: TypeAlias = Float[Tensor, "B V"]
"""One vector for each source."""
SourceWeights: TypeAlias = Float[Tensor, "B T S"]
"""Attention weights of a decoder over source positions."""
LogProbs: TypeAlias = Float[Tensor, "B T N"]
StepLogProbs: TypeAlias = Float[Tensor, "B N"]
"""Log-probabilities of the next token of each row."""
