"""What the settings of a stack make of it."""

import pytest
import torch

from heedful.layers.transformer import EmbeddedTransformerConfigBase

SMALL = {
    "hidden_size": 16,
    "num_layers": 4,
    "attention": {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}},
    "feed_forward": [{"intermediate_size": 12}],
}


def parts(**settings):
    return EmbeddedTransformerConfigBase.model_validate(SMALL | settings)


def test_the_base_model_of_the_paper_is_the_default():
    defaults = EmbeddedTransformerConfigBase()
    assert (defaults.hidden_size, defaults.num_layers, defaults.dropout) == (512, 6, 0.1)
    assert defaults.attention.multi_head.num_heads == 8
    assert [each.intermediate_size for each in defaults.feed_forward] == [2048]
    assert defaults.norm_order == "after"
    assert defaults.positional_encoding.type == "sinusoidal"
    assert defaults.scale_embeddings


@pytest.mark.parametrize(("placement", "ends_in_a_norm"), [("before", True), ("after", False)])
def test_only_what_is_normalised_before_ends_in_a_norm(placement, ends_in_a_norm):
    stack = parts(norm_order=placement).build_stack(config_path="encoder")
    assert (stack.norm is not None) == ends_in_a_norm


def test_higher_layers_are_skipped_more_often():
    stack = parts(drop_path=0.4).build_stack(config_path="encoder")
    for residual in ("self_residual", "residual"):
        shares = [getattr(layer, residual).drop_path for layer in stack.layers]
        assert shares == pytest.approx([0.1, 0.2, 0.3, 0.4])


def test_feed_forward_networks_are_taken_in_turn():
    stack = parts(feed_forward=[{"intermediate_size": 3}, {"intermediate_size": 5}]).build_stack(
        config_path="encoder"
    )
    assert [layer.feed_forward.input_projection.out_features for layer in stack.layers] == [
        3,
        5,
        3,
        5,
    ]


@pytest.mark.parametrize(("scaled", "factor"), [(True, 4.0), (False, 1.0)])
def test_words_are_scaled_where_the_settings_say_so(scaled, factor):
    embedding = parts(
        scale_embeddings=scaled, positional_encoding=None, dropout=0.0
    ).build_embedding(9)
    tokens = torch.tensor([[4, 8]])
    torch.testing.assert_close(embedding(tokens), factor * embedding.embedding.weight[tokens])


def test_an_embedding_is_normalised_where_the_settings_say_so():
    embedding = parts(embedding_norm=True, dropout=0.0).build_embedding(9)
    vectors = embedding(torch.tensor([[4, 8, 5]]))
    torch.testing.assert_close(vectors.mean(dim=-1), torch.zeros(1, 3), atol=1e-6, rtol=0)
    assert parts().build_embedding(9).norm is None
