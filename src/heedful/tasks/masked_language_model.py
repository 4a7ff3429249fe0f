"""Masked language models: which tokens are hidden in a text that is seen from both sides?

(Devlin et al. 2019, section 3.1.) What is hidden, and how, is decided where the data is made.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from heedful.config import Choice
from heedful.data.masking import MaskingConfig
from heedful.data.running import TextBatch
from heedful.decoders.own_tokens import Own
from heedful.encoders.config import EncoderConfig
from heedful.encoders.encoder import Encoder
from heedful.encoders.transformer import TransformerEncoderConfig
from heedful.layers.init import DefaultInitConfig, InitConfig
from heedful.layers.tying import tie
from heedful.shapes import Float, Int
from heedful.tasks.language_model import require_equal_widths
from heedful.tasks.model import Transduced


class MaskedLanguageModel(nn.Module):
    """p(x_t | all that is seen), by an encoder and W norm(gelu(V h + c)) + b.

    The encoder has one token more than can be said: the mask symbol, which is the last.
    """

    def __init__(self, encoder: Encoder, *, vocabulary_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.vocabulary_size = vocabulary_size
        size = encoder.size
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.LayerNorm(size))
        # As many rows as the encoder's table, which it may be; the last is never said.
        self.projection = nn.Linear(size, vocabulary_size + 1)

    @property
    def mask(self) -> int:
        """The mask symbol."""
        return self.vocabulary_size

    def forward(
        self,
        batch: TextBatch,
        teacher_share: float = 1.0,
        own: Own = "drawn",
        *,
        need_weights: bool = True,
    ) -> Transduced:
        """Say how likely each token is to stand at each place."""
        del teacher_share, own, need_weights  # no token waits for another, and no source is there
        encoded = self.encoder(batch.inputs, batch.lengths)
        return Transduced(self._say(encoded.states), None, dict(encoded.penalties))

    def _say(self, states: Float[Tensor, "B T D"]) -> Float[Tensor, "B T N"]:
        logits = self.projection(self.head(states))
        return logits[..., : self.vocabulary_size].log_softmax(dim=-1)

    def guess(self, tokens: Int[Tensor, "T"]) -> Float[Tensor, "T N"]:
        """Say how likely each token is to stand at each place of one text."""
        text = tokens.unsqueeze(0)
        return self(TextBatch(text, text)).log_probs.squeeze(0)


class MaskedLanguageModelConfig(Choice):
    """A model that finds out which tokens of a text are hidden (BERT; Devlin et al. 2019)."""

    kind: Literal["masked-language-model"] = "masked-language-model"
    encoder: EncoderConfig = TransformerEncoderConfig()
    """What reads the text."""
    masking: MaskingConfig = MaskingConfig()
    """Which tokens are hidden in training and validation."""
    tied: bool = True
    """Whether a token is said by the vector it is read by."""
    init: InitConfig = DefaultInitConfig()
    """Which values the weights begin with."""

    def build(self, *, source_size: int, target_size: int) -> MaskedLanguageModel:
        """Make the model for a vocabulary, which is source and target alike."""
        assert source_size == target_size, "a language model has one vocabulary"
        encoder = self.encoder.build(vocabulary_size=target_size + 1)
        model = MaskedLanguageModel(encoder, vocabulary_size=target_size)
        self.init.initialise(model)
        if self.tied:
            require_equal_widths(encoder.size, encoder.embedding.table.embedding_dim)
            tie(model.projection, encoder.embedding)
        return model
