"""Masked language models: an encoder that predicts masked tokens (BERT; Devlin et al. 2019).

Of the selected tokens, which are the targets, most are replaced by the mask symbol, some by another
token, and some stay, so that the model cannot tell which are right (section 3.1). A model may also
learn whether the second of two segments follows the first in the text, or comes from elsewhere.
"""

import math
from random import Random
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.text.token_stream import LMBatch
from heedful.errors import check
from heedful.layers.embeddings import tie_weights
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.models.base import Encoder, ModelOutput
from heedful.models.pretrained import NewEncoderConfig
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Float, Int, TokenIds
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, PAD

Probability = Annotated[float, Field(ge=0, le=1)]


class MaskedLanguageModel(nn.Module):
    """p(x_t | unmasked tokens), by an encoder and W norm(gelu(V h + c)) + b.

    The encoder's vocabulary has one more token, the mask symbol, which comes last: `mask_id`. With
    `prepend_bos` BOS precedes every row, as [CLS] does in the paper. So it does with
    `next_sentence_prediction`, and -log p(is
    next) = -log softmax(W tanh(V h_BOS + c) + b) is an auxiliary loss. A row counts in it as often
    as it has targets, which makes it a mean, too; in the paper rows count equally.
    """

    def __init__(
        self,
        encoder: Encoder,
        *,
        vocab_size: int,
        norm_eps: float = 1e-5,
        next_sentence_prediction: bool = False,
        prepend_bos: bool = False,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.prepend_bos = prepend_bos
        self.vocab_size = self.mask_id = vocab_size
        size = encoder.output_size
        norm = nn.LayerNorm(size, eps=norm_eps)
        self.head = nn.Sequential(nn.Linear(size, size), nn.GELU(), norm)
        # With a row for the mask symbol, so that it can be tied; that row is never predicted.
        self.projection = nn.Linear(size, vocab_size + 1)
        self.next_sentence: nn.Module | None = None
        if next_sentence_prediction:
            self.next_sentence = nn.Sequential(nn.Linear(size, size), nn.Tanh(), nn.Linear(size, 2))

    @override
    def forward(self, batch: LMBatch, *, need_weights: bool = False) -> ModelOutput:
        """Score every token at the positions of targets; there are no weights to return."""
        num_added = int(self.prepend_bos or self.next_sentence is not None)
        inputs = pad(batch.inputs, (num_added, 0), value=BOS)
        options = (
            {} if batch.segments is None else {"segments": pad(batch.segments, (num_added, 0))}
        )
        encoded = self.encoder(inputs, batch.lengths + num_added, **options)
        losses = dict(encoded.auxiliary_losses)
        if self.next_sentence is not None and batch.is_next is not None:
            is_next_logits = self.next_sentence(encoded.states[:, 0])
            row_losses = cross_entropy(is_next_logits, batch.is_next.long(), reduction="none")
            losses["next-sentence"] = row_losses @ (batch.targets != PAD).sum(1).to(row_losses)
        states = encoded.states[:, num_added:]
        if batch.target_positions is not None:
            states = states.take_along_dim(batch.target_positions.unsqueeze(-1), dim=1)
        logits = self.projection(self.head(states))[..., : self.vocab_size]
        return ModelOutput(logits.log_softmax(dim=-1), None, losses)

    def predict(self, tokens: Int[Tensor, "T"]) -> Float[Tensor, "T N"]:
        """Return the log-probability of each token at each position of a text."""
        batch = tokens.unsqueeze(0)
        return self(LMBatch(batch, batch)).log_probs.squeeze(0)


class MaskingConfig(BaseConfig):
    """How tokens are masked (Devlin et al. 2019)."""

    mlm_probability: Annotated[float, Field(gt=0, le=1)] = 0.15
    """Fraction of all tokens that are selected as targets."""
    mask_replace_prob: Probability = 0.8
    """Fraction of selected tokens that the mask symbol replaces."""
    random_replace_prob: Probability = 0.1
    """Fraction of selected tokens that a random token replaces; the rest stay."""

    @model_validator(mode="after")
    def _check_probabilities(self) -> "MaskingConfig":
        total = self.mask_replace_prob + self.random_replace_prob
        if total > 1:
            raise ValueError(f"mask_replace_prob + random_replace_prob is {total:g}, above 1")
        return self


def mask_tokens(tokens: TokenIds, config: MaskingConfig, *, vocab_size: int, seed: str) -> LMBatch:
    """Mask tokens at random; the id of the mask symbol is `vocab_size`."""
    generator = torch.Generator().manual_seed(Random(seed).getrandbits(63))
    selection = torch.rand(tokens.shape, generator=generator).masked_fill(tokens == PAD, 2.0)
    # At least one token, because the mean loss of no targets is not defined.
    is_selected = (selection < config.mlm_probability) | (selection == selection.min())
    draws = torch.rand(tokens.shape, generator=generator)
    random_tokens = torch.randint(NUM_SPECIAL_TOKENS, vocab_size, tokens.shape, generator=generator)
    is_replaced = draws < config.mask_replace_prob + config.random_replace_prob
    inputs = torch.where(is_replaced, random_tokens, tokens)
    inputs = inputs.masked_fill(draws < config.mask_replace_prob, vocab_size)
    return LMBatch(torch.where(is_selected, inputs, tokens), tokens.masked_fill(~is_selected, PAD))


def select_targets(batch: LMBatch) -> LMBatch:
    """Return the batch with only its targets, so that a model scores no other position.

    Rows have equally many positions, of which some may be padding; a multiple of 8, so that batch
    shapes recur.
    """
    is_target = batch.targets != PAD
    count = 8 * math.ceil(int(is_target.sum(dim=1).max()) / 8)
    positions = is_target.byte().argsort(dim=1, descending=True, stable=True)[:, :count]
    return batch._replace(targets=batch.targets.gather(1, positions), target_positions=positions)


def sample_sentence_pairs(tokens: TokenIds, *, seed: str) -> LMBatch:
    """Split rows in two segments; in half of them the second is text of another row.

    A second segment begins with a line, unless there is no line end (Devlin et al. 2019, 3.1).
    """
    rng, starts = Random(seed), [_line_starts(row) for row in tokens]
    inputs, segments, is_next = tokens.clone(), torch.zeros_like(tokens), []
    for row, line_starts in enumerate(starts):
        split = rng.choice(line_starts)
        segments[row, split:] = 1
        is_next.append(len(tokens) == 1 or rng.random() < 0.5)
        if not is_next[row]:
            other = (row + rng.randrange(1, len(tokens))) % len(tokens)
            text = tokens[other, rng.choice(starts[other]) :][: tokens.size(1) - split]
            inputs[row, split:] = PAD
            inputs[row, split : split + len(text)] = text
    return LMBatch(inputs, inputs, segments, torch.tensor(is_next))


def _line_starts(row: Int[Tensor, "T"]) -> list[int]:
    """Return the positions after line ends, or the middle of a row without any."""
    ids = row[row != PAD].tolist()
    return [i for i in range(1, len(ids)) if ids[i - 1] == EOS] or [(len(ids) + 1) // 2]


class MaskedLanguageModelConfig(BaseConfig):
    """A model of masked tokens (BERT; Devlin et al. 2019)."""

    type: Literal["masked-language-model"] = "masked-language-model"
    encoder: NewEncoderConfig = TransformerEncoderConfig()
    """The encoder of the text."""
    masking: MaskingConfig = MaskingConfig()
    """How tokens are masked in training and validation."""
    next_sentence_prediction: bool = False
    """Also predict whether the second half of a text follows the first (Devlin et al. 2019); one
    position more than `context_length` is needed, and `encoder.num_segments` 2."""
    prepend_bos: bool = False
    """Read BOS before every text, as BERT reads [CLS]; next-sentence prediction always does."""
    tie_embeddings: bool = True
    """Tie the output projection to the token embeddings."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(self, *, source_vocab_size: int, target_vocab_size: int) -> MaskedLanguageModel:
        assert source_vocab_size == target_vocab_size, "a language model has one vocabulary"
        has_segments = getattr(self.encoder, "num_segments", 0) == 2
        message = "next-sentence prediction needs embeddings of two segments"
        hint = "set it to 2, with encoder.type 'transformer'"
        is_valid = has_segments or not self.next_sentence_prediction
        check(is_valid, "model.encoder.num_segments", message, hint)
        encoder = self.encoder.build(vocab_size=target_vocab_size + 1)
        model = MaskedLanguageModel(
            encoder,
            vocab_size=target_vocab_size,
            norm_eps=getattr(self.encoder, "norm_eps", 1e-5),
            next_sentence_prediction=self.next_sentence_prediction,
            prepend_bos=self.prepend_bos,
        )
        self.init.initialize(model)
        if self.tie_embeddings:
            tie_weights(model.projection, encoder.embedding, "model.tie_embeddings", "false")
        return model
