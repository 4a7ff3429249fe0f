"""Language models: p(x_t | x_<t) of running text, by recurrent or Transformer layers.

Invariant: an output does not depend on later inputs; a text read at once gives the same
probabilities as the text read step by step or in pieces, from wherever it was left.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple, cast

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.attention.auxiliary_losses import NO_AUXILIARY_LOSSES
from heedful.attention.positional_encoding import PositionalEncodingConfig
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.data.text.token_stream import LMBatch
from heedful.errors import check
from heedful.layers.embeddings import TokenEmbedding, tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.layers.rnn import RecurrentLayer
from heedful.layers.rnn_cell_config import CellConfig, LSTMCellConfig
from heedful.layers.rnn_cells import RecurrentState
from heedful.layers.transformer import TransformerConfigBase, TransformerStack
from heedful.models.base import ModelOutput
from heedful.models.output_heads import log_softmax
from heedful.models.scheduled_sampling import InputSampler, run_scheduled_sampling
from heedful.search import StepOutput
from heedful.shapes import Float, HiddenStates, Int, Lengths, LogProbs, Losses, StepTokens, TokenIds

Inputs = Float[Tensor, "B T E"]


class BackboneOutput(NamedTuple):
    """Output of a causal backbone."""

    outputs: HiddenStates  # undefined in padding
    state: Any  # after the last real input of each row
    auxiliary_losses: Losses = NO_AUXILIARY_LOSSES
    weights: Float[Tensor, "B T S"] | None = None  # attention to all positions so far


class LanguageModelState(NamedTuple):
    """State after some tokens."""

    backbone_state: Any
    start_positions: Int[Tensor, "B"]  # of the next tokens


class LanguageModel(nn.Module):
    """Token embedding, causal backbone, and a softmax over the vocabulary."""

    def __init__(
        self, embedding: TokenEmbedding, backbone: "CausalBackbone", head: nn.Linear, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.backbone = backbone
        self.lm_head = head
        self.dropout = nn.Dropout(dropout)

    def forward(self, batch: LMBatch, *, need_weights: bool = False) -> ModelOutput:
        """Score the tokens of known texts with teacher forcing."""
        state = self.initial_state(batch.inputs)
        output: BackboneOutput = self.backbone(
            self.embedding(batch.inputs, state.start_positions),
            batch.lengths,
            state.backbone_state,
            need_weights=need_weights,
            need_state=False,
        )
        log_probs = self.compute_log_probs(output.outputs)
        return ModelOutput(log_probs, output.weights, dict(output.auxiliary_losses))

    def forward_scheduled_sampling(self, batch: LMBatch, sampler: InputSampler) -> ModelOutput:
        """Score the tokens with scheduled sampling (Bengio et al. 2015)."""
        state = self.initial_state(batch.inputs)
        log_probs, _ = run_scheduled_sampling(self, batch.inputs, state, sampler)
        return ModelOutput(log_probs, None, {})

    def initial_state(self, tokens: TokenIds) -> LanguageModelState:
        """Return the state before the first token, for as many rows as the tokens have."""
        backbone_state = self.backbone.initial_state(self.embedding(tokens[:, :1]))
        start_positions = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return LanguageModelState(backbone_state, start_positions)

    def encode_prompt(self, tokens: TokenIds, lengths: Lengths | None = None) -> LanguageModelState:
        """Return the state after a prompt, of which the first `lengths` are real, or all."""
        state = self.initial_state(tokens)
        return self.advance(tokens, state, lengths)[1] if tokens.size(1) else state

    def step(self, tokens: StepTokens, state: LanguageModelState) -> StepOutput[LanguageModelState]:
        """Process one token per row and predict the next; there is no source to attend to."""
        outputs, next_state = self.advance(tokens.unsqueeze(1), state)
        log_probs = self.compute_log_probs(outputs).squeeze(1)
        return StepOutput(log_probs, next_state, log_probs.new_zeros(len(tokens), 0))

    def compute_log_probs(self, outputs: HiddenStates) -> LogProbs:
        """Predict the next token from the output of the backbone at each position."""
        return log_softmax(self.lm_head(self.dropout(outputs)))

    def advance(
        self, tokens: TokenIds, state: LanguageModelState, lengths: Lengths | None = None
    ) -> tuple[HiddenStates, LanguageModelState]:
        """Read the next tokens; return the hidden state of each, and the state after them."""
        embedded = self.embedding(tokens, state.start_positions)
        if lengths is None:
            lengths = torch.full_like(state.start_positions, tokens.size(1))
        output: BackboneOutput = self.backbone(embedded, lengths, state.backbone_state)
        return output.outputs, LanguageModelState(output.state, state.start_positions + lengths)


class CausalBackbone(nn.Module, ABC):
    """Interface of the layers of language models."""

    output_size: int
    """Size of the outputs."""
    num_layers: int
    """Number of layers; their outputs have one size."""

    @abstractmethod
    def initial_state(self, inputs: Inputs) -> Any:
        """Return the state before the first input, for as many rows as the inputs have."""

    @abstractmethod
    def forward(
        self,
        inputs: Inputs,
        lengths: Lengths,
        state: Any,
        *,
        need_state: bool = True,
        need_weights: bool = False,
        layer_inputs: list[Tensor] | None = None,
    ) -> BackboneOutput:
        """Read the next inputs; the first `lengths` of each row are real.

        State and weights may be None if they are not needed; without attention, weights are None.
        The input of each layer is appended to `layer_inputs`.
        """


class RecurrentBackbone(CausalBackbone):
    """Recurrent layers with dropout between them."""

    def __init__(self, layers: Sequence[RecurrentLayer], *, size: int, dropout: float) -> None:
        super().__init__()
        self.layers = cast(Sequence[RecurrentLayer], nn.ModuleList(layers))
        self.num_layers = len(layers)
        self.output_size = size
        self.dropout = nn.Dropout(dropout)

    @override
    def initial_state(self, inputs: Inputs) -> tuple[RecurrentState, ...]:
        return tuple(layer.initial_state(inputs)[0] for layer in self.layers)

    @override
    def forward(
        self,
        inputs: Inputs,
        lengths: Lengths,
        state: tuple[RecurrentState, ...],
        *,
        need_state: bool = True,
        need_weights: bool = False,
        layer_inputs: list[Tensor] | None = None,
    ) -> BackboneOutput:
        outputs: Tensor = inputs
        final_states: list[RecurrentState] = []
        for index, (layer, layer_state) in enumerate(zip(self.layers, state, strict=True)):
            if layer_inputs is not None:
                layer_inputs.append(outputs)
            arguments = (self.dropout(outputs) if index else outputs, lengths, [layer_state])
            if need_state:
                outputs, layer_states = layer.forward_with_states(*arguments)
                final_states += layer_states
            else:
                outputs = layer(*arguments)
        return BackboneOutput(outputs, tuple(final_states) if need_state else None)


class RecurrentBackboneConfig(BaseConfig):
    """Recurrent layers, from left to right."""

    type: Literal["recurrent"] = "recurrent"
    cell: CellConfig = LSTMCellConfig()
    """Recurrent cell of all layers."""
    hidden_size: PositiveInt = 256
    """Size of the hidden states."""
    num_layers: PositiveInt = Field(default=1, le=1000)
    """Number of layers."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability between layers."""

    def build(self, *, input_size: int) -> RecurrentBackbone:
        hidden_size, build_cell = self.hidden_size, self.cell.build
        input_sizes = [input_size] + [hidden_size] * (self.num_layers - 1)
        cells = [build_cell(input_size=size, hidden_size=hidden_size) for size in input_sizes]
        layers = [RecurrentLayer(forward_cell=cell) for cell in cells]
        return RecurrentBackbone(layers, size=hidden_size, dropout=self.dropout)


class TransformerBackbone(CausalBackbone):
    """A causal stack of Transformer layers (Liu et al. 2018; Radford et al. 2018)."""

    def __init__(self, stack: TransformerStack, *, size: int) -> None:
        super().__init__()
        self.stack = stack
        self.num_layers = len(stack.layers)
        self.output_size = size

    @override
    def initial_state(self, inputs: Inputs) -> Any:
        return self.stack.initial_state(inputs)

    @override
    def forward(
        self,
        inputs: Inputs,
        lengths: Lengths,
        state: Any,
        *,
        need_state: bool = True,
        need_weights: bool = False,
        layer_inputs: list[Tensor] | None = None,
    ) -> BackboneOutput:
        output = self.stack(
            inputs, lengths, state, need_weights=need_weights, layer_inputs=layer_inputs
        )
        return BackboneOutput(output.outputs, output.state, output.auxiliary_losses, output.weights)


class TransformerBackboneConfig(TransformerConfigBase):
    """Causal Transformer layers."""

    type: Literal["transformer"] = "transformer"

    def build(self, *, input_size: int) -> TransformerBackbone:
        message = f"must equal the size of the embeddings, {input_size}, but is {self.hidden_size}"
        hint = f"set it to {input_size}, or embedding_size to {self.hidden_size}"
        check(input_size == self.hidden_size, "backbone.hidden_size", message, hint)
        stack = self.build_stack(config_path="backbone")
        message = "attention that depends on earlier alignments cannot read a text in pieces"
        hint = "use an alignment such as 'softmax', and a score without features"
        check(not stack.is_stateful, "backbone.attention", message, hint)
        return TransformerBackbone(stack, size=self.hidden_size)


BackboneConfig = Annotated[
    RecurrentBackboneConfig | TransformerBackboneConfig,
    Field(discriminator="type"),
    with_default_type("recurrent"),
]


class BoundedContextState(NamedTuple):
    """State of a language model, and the tokens that it has read since it was last restarted."""

    model_state: LanguageModelState
    recent_tokens: TokenIds


class BoundedContextModel:
    """A language model that sees no more tokens than it was trained with.

    After `context_length` tokens it restarts from the latter half of them, as if the text began
    there, so that the cost of a step does not grow with the text.
    """

    def __init__(self, model: LanguageModel, context_length: int) -> None:
        self.model = model
        self.context_length = context_length

    def encode_prompt(self, tokens: TokenIds) -> BoundedContextState:
        """Return the state after a prompt."""
        if tokens.size(1) >= self.context_length:
            tokens = tokens[:, tokens.size(1) - self.context_length // 2 :]
        return BoundedContextState(self.model.encode_prompt(tokens), tokens)

    def step(
        self, tokens: StepTokens, state: BoundedContextState
    ) -> StepOutput[BoundedContextState]:
        """Process one token per row and predict the next."""
        if state.recent_tokens.size(1) >= self.context_length:
            state = self.encode_prompt(state.recent_tokens)
        step = self.model.step(tokens, state.model_state)
        recent_tokens = torch.cat([state.recent_tokens, tokens.unsqueeze(1)], dim=1)
        next_state = BoundedContextState(step.state, recent_tokens)
        return StepOutput(step.log_probs, next_state, step.weights)


class LanguageModelConfigBase(BaseConfig):
    """Common settings of language models, with a source and without."""

    type: str
    backbone: BackboneConfig = RecurrentBackboneConfig()
    """Recurrent or Transformer layers."""
    embedding_size: PositiveInt = 256
    """Size of the token embeddings."""
    positional_encoding: PositionalEncodingConfig | None = None
    """Positional encoding of the tokens, counted over a source and its target; null for none."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of embeddings and of the input of the output layer."""
    output_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout probability of the input of the output layer, if it is not `dropout`."""
    lm_head_bias: bool | Literal["fixed"] = True
    """Add a bias to the logits; tied output layers have none (Vaswani et al. 2017, 3.4). A fixed
    one is not trained: that of imported models excludes tokens which they do not have."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build_embedding(self, vocab_size: int, *, scale_embeddings: bool) -> TokenEmbedding:
        """Build the embedding of the tokens of a vocabulary."""
        size, positions = self.embedding_size, self.positional_encoding
        return TokenEmbedding(
            vocab_size,
            size,
            dropout=self.dropout,
            position_combiner=positions.build(embedding_size=size) if positions else None,
            scale_embeddings=scale_embeddings,
        )

    def build_lm_head(self, input_size: int, vocab_size: int) -> nn.Linear:
        """Build the output layer."""
        lm_head = nn.Linear(input_size, vocab_size, bias=bool(self.lm_head_bias))
        if self.lm_head_bias == "fixed":
            lm_head.bias.requires_grad_(False)
        return lm_head


class LanguageModelConfig(LanguageModelConfigBase):
    """A causal language model of running text."""

    type: Literal["language-model"] = "language-model"
    tie_embeddings: bool = False
    """Use the embeddings as output weights, too (Press and Wolf 2017)."""
    scale_embeddings: bool = False
    """Multiply embeddings by the square root of their size (Vaswani et al. 2017)."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> LanguageModel:
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        embedding = self.build_embedding(target_vocab_size, scale_embeddings=self.scale_embeddings)
        backbone = self.backbone.build(input_size=embedding.embedding_size)
        lm_head = self.build_lm_head(backbone.output_size, target_vocab_size)
        dropout = self.dropout if self.output_dropout is None else self.output_dropout
        model = LanguageModel(embedding, backbone, lm_head, dropout)
        self.init.initialize(model)
        if self.tie_embeddings:
            tie_weights(lm_head, embedding, "model.tie_embeddings", "false")
        return model
