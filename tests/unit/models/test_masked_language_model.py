"""Masked language models: they see both sides, and never say the mask."""

import pytest
import torch
from torch.optim import Adam

from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.scores import ScaledDotScoreConfig
from heedful.data.text.token_stream import LMBatch
from heedful.errors import ConfigError
from heedful.layers.initialization import XavierInitConfig
from heedful.layers.sublayers import FeedForwardConfig
from heedful.models.masked_language_model import (
    MaskedLanguageModelConfig,
    MaskingConfig,
    mask_tokens,
    sample_sentence_pairs,
    select_targets,
)
from heedful.models.output_heads import negative_log_likelihood
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.transformer import TransformerEncoderConfig
from heedful.pytree import select_rows
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, PAD
from tests.shape_checking import unchecked

SIZE = 12
CONFIGS = {
    "transformer": MaskedLanguageModelConfig(
        encoder=TransformerEncoderConfig(
            hidden_size=16,
            num_layers=2,
            dropout=0.0,
            attention=AttentionConfig(
                score=ScaledDotScoreConfig(), multi_head=MultiHeadConfig(num_heads=2)
            ),
            feed_forward=(FeedForwardConfig(intermediate_size=32),),
        ),
        init=XavierInitConfig(),
    ),
    "recurrent": MaskedLanguageModelConfig(
        encoder=RecurrentEncoderConfig(embedding_size=6, hidden_size=10), tie_embeddings=False
    ),
}
CONFIGS["next sentence"] = CONFIGS["transformer"].model_copy(
    update={
        "encoder": CONFIGS["transformer"].encoder.model_copy(update={"num_segments": 2}),
        "next_sentence_prediction": True,
    }
)
each_model = pytest.mark.parametrize("name", CONFIGS)


def build(name):
    return CONFIGS[name].build(source_vocab_size=SIZE, target_vocab_size=SIZE)


def texts(rows, length):
    return torch.randint(NUM_SPECIAL_TOKENS, SIZE, (rows, length))


@each_model
def test_mask_symbol_is_input_only(name):
    model, tokens = build(name).eval(), texts(2, 5)
    tokens[0, 2] = model.mask_id
    log_probs = model(LMBatch(tokens, tokens)).log_probs
    assert log_probs.shape == (2, 5, SIZE)
    torch.testing.assert_close(log_probs.exp().sum(dim=-1), torch.ones(2, 5))


@each_model
def test_prediction_depends_on_both_sides_but_not_padding(name):
    model, tokens = build(name).double().eval(), texts(1, 6)
    at = model.predict(tokens[0])[3]
    for position in range(6):
        changed = tokens[0].clone()
        changed[position] = (changed[position] - NUM_SPECIAL_TOKENS + 1) % (
            SIZE - NUM_SPECIAL_TOKENS
        ) + NUM_SPECIAL_TOKENS
        assert not torch.allclose(model.predict(changed)[3], at)
    padded = torch.cat([tokens, torch.full((1, 3), PAD)], dim=1)
    torch.testing.assert_close(model(LMBatch(padded, padded)).log_probs[0, 3], at)


def test_tied_projection_is_embedding():
    model = build("transformer")
    assert model.projection.weight is model.encoder.embedding.embedding.weight
    assert model.projection.weight.shape == (SIZE + 1, 16)


@pytest.mark.diagonal
@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_model_learns_to_fill_in_masks(name):
    """Each text counts upwards from where it will, round and round: any gap can be filled."""
    model, kinds = build(name).train(), SIZE - NUM_SPECIAL_TOKENS

    def counting(rows):
        starts = torch.randint(kinds, (rows, 1))
        return (starts + torch.arange(10)) % kinds + NUM_SPECIAL_TOKENS

    optimizer = Adam(model.parameters(), lr=5e-3)
    with unchecked():
        for step in range(250):
            batch = mask_tokens(counting(32), MaskingConfig(), vocab_size=SIZE, seed=str(step))
            loss = negative_log_likelihood(model(batch).log_probs, batch.targets)
            optimizer.zero_grad()
            (loss / batch.num_targets).backward()
            optimizer.step()
        tokens = counting(kinds)
        shown = tokens.clone()
        shown[:, 4] = model.mask_id
        guessed = model.eval()(LMBatch(shown, tokens)).log_probs.argmax(dim=-1)
    assert torch.equal(guessed[:, 4], tokens[:, 4])


@pytest.mark.diagonal
def test_model_learns_to_predict_the_next_sentence():
    """Every text repeats one token, so the next segment is known by its tokens."""
    model, kinds = build("next sentence").train(), SIZE - NUM_SPECIAL_TOKENS

    def pairs(seed):
        tokens = torch.arange(kinds)[:, None].expand(kinds, 6) + NUM_SPECIAL_TOKENS
        return sample_sentence_pairs(tokens.repeat(4, 1)[torch.randperm(4 * kinds)], seed=seed)

    def is_same(batch):
        return torch.tensor([len(set(row.tolist()) - {PAD}) == 1 for row in batch.inputs])

    optimizer = Adam(model.parameters(), lr=5e-3)
    with unchecked():
        for step in range(120):
            batch = pairs(str(step))
            batch = batch._replace(is_next=is_same(batch))  # of two texts of the same token, too
            loss = model(batch).auxiliary_losses["next-sentence"] / batch.num_targets
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    assert loss.item() < 0.1


def test_next_sentence_loss_adds_up_over_rows():
    """So that results do not depend on the number of ranks and micro-batches."""
    model, tokens = build("next sentence").eval(), texts(5, 7)
    pairs = sample_sentence_pairs(tokens, seed="3")
    batch = mask_tokens(pairs.inputs, MaskingConfig(mlm_probability=0.5), vocab_size=SIZE, seed="4")
    batch = pairs._replace(inputs=batch.inputs, targets=batch.targets)
    parts = [select_rows(batch, torch.tensor(rows)) for rows in ([0, 1], [2, 3, 4])]
    whole, *others = (model(part).auxiliary_losses["next-sentence"] for part in (batch, *parts))
    torch.testing.assert_close(whole, sum(others))


@each_model
def test_selected_targets_return_the_loss_and_gradients_of_all_positions(name):
    model, tokens = build(name).eval(), texts(5, 19)
    pairs = sample_sentence_pairs(tokens, seed="3") if name == "next sentence" else None
    batch = mask_tokens(tokens, MaskingConfig(), vocab_size=SIZE, seed="5")
    if pairs is not None:
        batch = batch._replace(segments=pairs.segments, is_next=pairs.is_next)
    selected = select_targets(batch)
    assert selected.targets.shape == (5, 8)
    assert selected.num_targets == batch.num_targets
    results = []
    for examples in (batch, selected):
        output = model(examples)
        loss = negative_log_likelihood(output.log_probs, examples.targets, 0.1)
        total = sum(output.auxiliary_losses.values(), loss)
        results.append((total, *torch.autograd.grad(total, list(model.parameters()))))
    torch.testing.assert_close(results[1], results[0])


def test_segments_change_outputs_and_default_to_the_first():
    model, tokens = build("next sentence").eval(), texts(2, 5)
    segments = torch.zeros_like(tokens)
    plain = model(LMBatch(tokens, tokens)).log_probs
    torch.testing.assert_close(model(LMBatch(tokens, tokens, segments)).log_probs, plain)
    segments[:, 3:] = 1
    assert not torch.allclose(model(LMBatch(tokens, tokens, segments)).log_probs, plain)


@pytest.mark.parametrize("name", ["transformer", "recurrent"])
def test_next_sentence_prediction_needs_segments(name):
    config = CONFIGS[name].model_copy(update={"next_sentence_prediction": True})
    with pytest.raises(ConfigError) as caught:
        config.build(source_vocab_size=SIZE, target_vocab_size=SIZE)
    assert str(caught.value) == (
        "model.encoder.num_segments: next-sentence prediction needs embeddings of two segments\n"
        "  set it to 2, with encoder.type 'transformer'"
    )
