"""The systems beside heedful: Hugging Face Marian, `nn.Transformer`, a loop over `nn.LSTMCell`."""

from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from benchmarks.gpu.workload import VOCABULARY, Sizes
from heedful.data.text.batching import Batch
from heedful.tokenization.vocabulary import BOS, EOS, PAD

LABEL_SMOOTHING = 0.1
MAX_LENGTH = 256


def has_transformers() -> bool:
    """Return whether Hugging Face transformers is installed."""
    return find_spec("transformers") is not None


def build_marian(sizes: Sizes, *, inner_dropout: float = 0.0) -> Any:
    """Return Hugging Face's MarianMTModel with random parameters.

    `inner_dropout` is that of attention weights and of hidden layers.
    """
    from transformers import MarianConfig, MarianMTModel

    side = {
        "layers": sizes.num_layers,
        "attention_heads": sizes.num_heads,
        "ffn_dim": sizes.intermediate_size,
    }
    config = MarianConfig(
        vocab_size=sizes.vocab_size,
        d_model=sizes.hidden_size,
        max_position_embeddings=MAX_LENGTH,
        pad_token_id=PAD,
        eos_token_id=EOS,
        forced_eos_token_id=EOS,
        decoder_start_token_id=BOS,
        dropout=0.1,
        attention_dropout=inner_dropout,
        activation_dropout=inner_dropout,
        attn_implementation="sdpa",
        **{
            f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()
        },
    )
    return MarianMTModel(config)


class MarianLoss(nn.Module):
    """The loss of Marian on a batch of ours."""

    def __init__(self, model: Any, *, has_padding: bool = False) -> None:
        super().__init__()
        self.model = model
        self.has_padding = has_padding

    def forward(self, batch: Batch) -> Tensor:
        """Return the cross entropy with label smoothing."""
        tokens = batch.sources.tokens
        mask = (tokens != PAD).long() if self.has_padding else None
        output = self.model(
            input_ids=tokens, attention_mask=mask, decoder_input_ids=batch.decoder_inputs
        )
        return smoothed_cross_entropy(output.logits, batch.targets)


class PlainTransformer(nn.Module):
    """`nn.Transformer` with shared embeddings, as an untuned training loop uses it."""

    def __init__(self, sizes: Sizes, *, has_padding: bool = False) -> None:
        super().__init__()
        self.has_padding = has_padding
        hidden = sizes.hidden_size
        self.embedding = nn.Embedding(sizes.vocab_size, hidden)
        nn.init.normal_(self.embedding.weight, std=hidden**-0.5)
        self.positions = nn.Embedding(MAX_LENGTH, hidden)
        layers, feed_forward = sizes.num_layers, sizes.intermediate_size
        self.transformer = nn.Transformer(
            hidden, sizes.num_heads, layers, layers, feed_forward, 0.1, batch_first=True
        )

    def forward(self, batch: Batch) -> Tensor:
        """Return the cross entropy with label smoothing."""
        length = batch.targets.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length, batch.targets.device)
        is_padding = batch.sources.tokens == PAD if self.has_padding else None
        features = self.transformer(
            self._embed(batch.sources.tokens),
            self._embed(batch.decoder_inputs),
            tgt_mask=mask,
            src_key_padding_mask=is_padding,
            memory_key_padding_mask=is_padding,
            tgt_is_causal=True,
        )
        return smoothed_cross_entropy(features @ self.embedding.weight.T, batch.targets)

    def _embed(self, tokens: Tensor) -> Tensor:
        return self.embedding(tokens) + self.positions.weight[: tokens.shape[1]]


class PlainBahdanau(nn.Module):
    """nn.LSTM as encoder, and a Python loop over nn.LSTMCell with additive attention.

    h = LSTM([y; a]), c = softmax(v . tanh(W h + U k)) k, a = tanh(C [h; c]); a gives the logits.
    """

    def __init__(
        self,
        size: int = 512,
        vocab_size: int = VOCABULARY,
        *,
        memory_size: int | None = None,  # both directions of the encoder
        dropout: float = 0.4,
        has_padding: bool = False,
    ) -> None:
        super().__init__()
        self.has_padding = has_padding
        memory_size = memory_size or 2 * size
        self.source_embedding = nn.Embedding(vocab_size, size)
        self.target_embedding = nn.Embedding(vocab_size, size)
        self.encoder = nn.LSTM(
            size, memory_size // 2, 2, batch_first=True, bidirectional=True, dropout=dropout
        )
        self.bridge = nn.Linear(memory_size, size)
        self.cell = nn.LSTMCell(2 * size, size)
        self.key_projection = nn.Linear(memory_size, size, bias=False)
        self.query_projection = nn.Linear(size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)
        self.combine = nn.Linear(size + memory_size, size)
        self.dropout = nn.Dropout(dropout)
        self.output = nn.Linear(size, vocab_size)

    def forward(self, batch: Batch) -> Tensor:
        """Return the cross entropy with label smoothing."""
        tokens, lengths = batch.sources
        embedded_source = self.dropout(self.source_embedding(tokens))
        is_padding = (tokens == PAD).unsqueeze(-1)
        if self.has_padding:
            packed = pack_padded_sequence(
                embedded_source, lengths, batch_first=True, enforce_sorted=False
            )
            memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        else:
            memory, _ = self.encoder(embedded_source)
        keys = self.key_projection(memory)
        embedded = self.dropout(self.target_embedding(batch.decoder_inputs))
        hidden = self.bridge(memory.mean(1)).tanh()
        cell, vector, vectors = torch.zeros_like(hidden), torch.zeros_like(hidden), []
        for embedding in embedded.unbind(1):
            hidden, cell = self.cell(torch.cat([embedding, vector], -1), (hidden, cell))
            activations = (self.query_projection(hidden).unsqueeze(1) + keys).tanh()
            scores = self.score(activations)
            if self.has_padding:
                scores = scores.masked_fill(is_padding, -torch.inf)
            weights = scores.softmax(1)
            context = (weights * memory).sum(1)
            vector = self.combine(torch.cat([hidden, context], -1)).tanh()
            vectors.append(vector)
        logits = self.output(self.dropout(torch.stack(vectors, 1)))
        return smoothed_cross_entropy(logits, batch.targets)


class PlainAdditiveAttention(nn.Module):
    """softmax(v . tanh(W q + U k)) k for all queries at once: a tensor (B, T, S, A)."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.query_projection = nn.Linear(size, size, bias=False)
        self.key_projection = nn.Linear(size, size, bias=False)
        self.score = nn.Linear(size, 1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Attend to the inputs with each of them."""
        queries = self.query_projection(inputs).unsqueeze(-2)
        activations = (queries + self.key_projection(inputs).unsqueeze(-3)).tanh()
        return self.score(activations).squeeze(-1).softmax(-1).to(inputs.dtype) @ inputs


def smoothed_cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross entropy over the tokens that are not padding."""
    return cross_entropy(
        logits.flatten(0, -2).float(),
        targets.flatten(),
        ignore_index=PAD,
        label_smoothing=LABEL_SMOOTHING,
    )
