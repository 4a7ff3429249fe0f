"""Language models: how likely is each next token of a running text?

The text is read by a reader, from left to right. Law: a text read at once is the same text read
step by step, from wherever it was left.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn

from heedful.attention.choices.positions import PositionConfig
from heedful.config import Choice
from heedful.data.running import TextBatch
from heedful.decoders.own_tokens import Own, step_by_step
from heedful.errors import ConfigError
from heedful.layers.embeddings import Embedding
from heedful.layers.init import DefaultInitConfig, InitConfig
from heedful.layers.reader import Read, Reader
from heedful.layers.tying import tie
from heedful.readers.choices import ReaderConfig
from heedful.readers.recurrent import RecurrentReaderConfig
from heedful.search import Step
from heedful.shapes import Float, Int
from heedful.tasks.model import Transduced


class LanguageState(NamedTuple):
    """All that is needed to go on: what was read, and how much."""

    read: Any
    first: Int[Tensor, "B"]  # the number of the next place


class LanguageModel(nn.Module):
    """p(x_t | x_<t), by a reader over all of them."""

    def __init__(
        self, embedding: Embedding, reader: Reader, projection: nn.Linear, *, dropout: float
    ) -> None:
        super().__init__()
        self.embedding = embedding
        self.reader = reader
        self.projection = projection
        self.dropout = nn.Dropout(dropout)

    def forward(
        self,
        batch: TextBatch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token of known texts is."""
        state = self.begin(batch.inputs)
        if teacher_share < 1:
            said, _ = step_by_step(self, batch.inputs, state, teacher_share, own)
            return Transduced(said, None, {})
        read = self._read_on(
            batch.inputs, batch.lengths, state, need_weights=need_weights, need_state=False
        )
        return Transduced(self._say(read.outputs), read.weights, dict(read.penalties))

    def begin(self, tokens: Int[Tensor, "B T"]) -> LanguageState:
        """Make the state of having read nothing, for as many rows as these."""
        first = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        return LanguageState(self.reader.begin(self.embedding(tokens[:, :1])), first)

    def start(self, tokens: Int[Tensor, "B T"]) -> LanguageState:
        """Read the beginnings of texts, to go on from them."""
        state = self.begin(tokens)
        lengths = torch.full_like(state.first, tokens.size(1))
        if not tokens.size(1):
            return state
        read = self._read_on(tokens, lengths, state, need_weights=False, need_state=True)
        return LanguageState(read.state, lengths)

    def step(self, tokens: Int[Tensor, "B"], state: LanguageState) -> Step[LanguageState]:
        """Read one token; say how likely each next one is."""
        each = torch.ones_like(tokens)
        read = self._read_on(tokens.unsqueeze(1), each, state, need_weights=False, need_state=True)
        log_probs = self._say(read.outputs).squeeze(1)
        # There is no source to look at.
        nowhere = log_probs.new_zeros(len(tokens), 0)
        return Step(log_probs, LanguageState(read.state, state.first + 1), nowhere)

    def _read_on(
        self,
        tokens: Int[Tensor, "B T"],
        lengths: Int[Tensor, "B"],
        state: LanguageState,
        *,
        need_weights: bool,
        need_state: bool,
    ) -> Read:
        embedded = self.embedding(tokens, state.first)
        return self.reader(
            embedded, lengths, state.read, need_weights=need_weights, need_state=need_state
        )

    def _say(self, features: Float[Tensor, "*B D"]) -> Float[Tensor, "*B N"]:
        return self.projection(self.dropout(features)).log_softmax(dim=-1)


class BoundedState(NamedTuple):
    """What was read, and the tokens of it that a new beginning would begin with."""

    read: LanguageState
    recent: Int[Tensor, "B T"]


class Bounded:
    """A language model that looks back no further than it learned to.

    Once it has read `context` tokens, it begins anew with the latter half of them, as if the text
    began there: what it costs to go on does not grow with the text.
    """

    def __init__(self, model: LanguageModel, context: int) -> None:
        self.model = model
        self.context = context

    def start(self, tokens: Int[Tensor, "B T"]) -> BoundedState:
        """Read the beginnings of texts, to go on from them."""
        recent = tokens if tokens.size(1) < self.context else self._latter(tokens)
        return BoundedState(self.model.start(recent), recent)

    def step(self, tokens: Int[Tensor, "B"], state: BoundedState) -> Step[BoundedState]:
        """Read one token; say how likely each next one is."""
        if state.recent.size(1) >= self.context:
            state = self.start(state.recent)
        step = self.model.step(tokens, state.read)
        recent = torch.cat([state.recent, tokens.unsqueeze(1)], dim=1)
        return Step(step.log_probs, BoundedState(step.state, recent), step.weights)

    def _latter(self, tokens: Int[Tensor, "B T"]) -> Int[Tensor, "B _"]:
        return tokens[:, tokens.size(1) - self.context // 2 :]


class LanguageModelConfig(Choice):
    """A model of running text, from left to right."""

    kind: Literal["language-model"] = "language-model"
    reader: ReaderConfig = RecurrentReaderConfig()
    """What reads the text."""
    embedding_size: PositiveInt = 256
    """Width of a token's vector."""
    positions: PositionConfig | None = None
    """How tokens are told their places in what is read at once; if not given, they are not."""
    tied: bool = False
    """Whether a token is said by the vector it is read by (Press & Wolf 2017)."""
    scaled: bool = False
    """Whether a token's vector is multiplied by the root of its width (Vaswani et al. 2017)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values dropped from embeddings and before the emission."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_size: int, target_size: int) -> LanguageModel:
        """Make the model for a vocabulary, which is source and target alike."""
        assert source_size == target_size, "a language model has one vocabulary"
        size, places = self.embedding_size, self.positions
        embedding = Embedding(
            target_size,
            size,
            dropout=self.dropout,
            placing=places.build(embedding_size=size) if places else None,
            scaled=self.scaled,
        )
        reader = self.reader.build(input_size=embedding.size)
        projection = nn.Linear(reader.size, target_size)
        model = LanguageModel(embedding, reader, projection, dropout=self.dropout)
        self.init.initialise(model)
        if self.tied:
            require_equal_widths(reader.size, size)
            tie(projection, embedding)
        return model


def require_equal_widths(said: int, read: int) -> None:
    """Refuse to say tokens by vectors of another width than they are read by."""
    if said != read:
        raise ConfigError(
            "model.tied",
            f"a token is said by a vector of {said} numbers and read by one of {read}",
            "make both widths the same, or set tied to false",
        )
