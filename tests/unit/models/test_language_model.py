"""Language models: read at once or step by step, from any beginning, and never from the future."""

import pytest
import torch

from heedful.attention.config import AttentionConfig
from heedful.attention.multi_head import MultiHeadConfig
from heedful.attention.positional_encoding import LearnedEncodingConfig
from heedful.attention.scores import ScaledDotScoreConfig
from heedful.data.text.token_stream import LMBatch
from heedful.errors import ConfigError
from heedful.layers.sublayers import FeedForwardConfig
from heedful.models.language_model import (
    BoundedContextModel,
    LanguageModelConfig,
    RecurrentBackboneConfig,
    TransformerBackboneConfig,
)
from heedful.models.scheduled_sampling import InputSampler
from heedful.pytree import select_rows
from heedful.storage.state_dict import load_weights, save_weights, unique_weights
from heedful.tokenization.vocabulary import PAD

SIZE = 11  # of the vocabulary
ROWS, LENGTH = 3, 9

TRANSFORMER = TransformerBackboneConfig(
    hidden_size=8,
    num_layers=2,
    attention=AttentionConfig(
        score=ScaledDotScoreConfig(), multi_head=MultiHeadConfig(num_heads=2)
    ),
    feed_forward=(FeedForwardConfig(intermediate_size=16),),
    norm_order="pre",
)
CONFIGS = {
    "recurrent": LanguageModelConfig(
        backbone=RecurrentBackboneConfig(hidden_size=7, num_layers=2), embedding_size=8
    ),
    "transformer": LanguageModelConfig(
        backbone=TRANSFORMER,
        embedding_size=8,
        positional_encoding=LearnedEncodingConfig(max_positions=40),
        tie_embeddings=True,
    ),
}
each_model = pytest.mark.parametrize("name", CONFIGS)


def build(name):
    return CONFIGS[name].build(source_vocab_size=SIZE, target_vocab_size=SIZE).double().eval()


def texts(rows=ROWS, length=LENGTH):
    return torch.randint(1, SIZE, (rows, length))


def read(model, tokens):
    return model(LMBatch(tokens, tokens)).log_probs


@each_model
@pytest.mark.parametrize("read_before", [0, 1, 4])
def test_steps_after_any_prompt_equal_the_whole_text(name, read_before):
    model, tokens = build(name), texts()
    whole = read(model, tokens)
    state = model.encode_prompt(tokens[:, :read_before])
    for place in range(read_before, LENGTH):
        step = model.step(tokens[:, place], state)
        torch.testing.assert_close(step.log_probs, whole[:, place])
        state = step.state


@each_model
def test_selected_rows_match_separate_decoding(name):
    model, tokens = build(name), texts()
    rows = torch.tensor([2, 0, 2])
    state = select_rows(model.encode_prompt(tokens[:, :5]), rows)
    step = model.step(tokens[rows, 5], state)
    torch.testing.assert_close(step.log_probs, read(model, tokens)[rows, 5])


@each_model
def test_padding_has_no_influence(name):
    model, tokens = build(name), texts()
    padded = torch.cat([tokens, torch.full((ROWS, 4), PAD)], dim=1)
    padded[1, 6:] = PAD
    actual = read(model, padded)
    whole = read(model, tokens)
    torch.testing.assert_close(actual[[0, 2], :LENGTH], whole[[0, 2]])
    torch.testing.assert_close(actual[1, :6], whole[1, :6])


@each_model
def test_token_influences_own_and_later_positions(name):
    model, tokens = build(name), texts(1)
    whole = read(model, tokens)
    for position in range(LENGTH):
        changed = tokens.clone()
        changed[:, position] = changed[:, position] % (SIZE - 1) + 1
        has_changed = (read(model, changed) != whole).any(-1)[0]
        assert has_changed.tolist() == [other >= position for other in range(LENGTH)]


@each_model
def test_teacher_forcing_ratio_0_continues_greedily(name):
    model, tokens = build(name), texts()
    batch = LMBatch(tokens, tokens)
    own = model.forward_scheduled_sampling(batch, InputSampler(0.0, "argmax")).log_probs
    written = tokens[:, :1]
    for place in range(LENGTH):
        said = read(model, written)
        torch.testing.assert_close(own[:, place], said[:, -1])
        written = torch.cat([written, said[:, -1].argmax(-1, keepdim=True)], dim=1)


@each_model
@pytest.mark.parametrize("context", [2, 5, 8])
@pytest.mark.parametrize("read_before", [0, 3, 12])
def test_bounded_context_is_between_half_and_all_of_the_length(name, context, read_before):
    """Each token is said as by a model that was shown a piece of the text, and nothing else."""
    model, tokens = build(name), texts(length=18)
    bounded = BoundedContextModel(model, context)
    state = bounded.encode_prompt(tokens[:, :read_before])
    for place in range(read_before, 18):
        step = bounded.step(tokens[:, place], state)
        state = step.state
        seen = state.recent_tokens.size(1)
        assert min(place + 1, context // 2) <= seen <= context
        shown = tokens[:, place + 1 - seen : place + 1]
        assert torch.equal(state.recent_tokens, shown)
        torch.testing.assert_close(step.log_probs, read(model, shown)[:, -1])


def test_tied_weights_shared_and_restored(tmp_path):
    model = build("transformer")
    assert model.lm_head.weight is model.embedding.embedding.weight
    save_weights(unique_weights(model), tmp_path / "weights")
    other = build("transformer")
    load_weights(other, tmp_path / "weights")
    tokens = texts()
    assert torch.equal(read(model, tokens), read(other, tokens))
    assert other.lm_head.weight is other.embedding.embedding.weight


def test_tying_different_sizes_raises():
    config = CONFIGS["recurrent"].model_copy(update={"tie_embeddings": True})
    with pytest.raises(ConfigError) as caught:
        config.build(source_vocab_size=SIZE, target_vocab_size=SIZE)
    assert str(caught.value) == (
        "model.tie_embeddings: output weights have size 7, but embeddings have size 8\n"
        "  make both sizes equal, or set tie_embeddings to false"
    )
