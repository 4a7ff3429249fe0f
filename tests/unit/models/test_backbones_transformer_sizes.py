"""How many numbers a reader of GPT's size learns, counted by hand."""

import torch

from heedful.attention.positional_encoding import LearnedEncodingConfig
from heedful.layers.embeddings import TokenEmbedding
from heedful.models.language_model import TransformerBackboneConfig


def learned(model):
    return sum(weight.numel() for weight in model.parameters())


def test_gpt_sized_backbone_has_the_published_number_of_parameters():
    """Radford et al. 2018: 117 million; 40,478 words, 512 places, one table to read and to say."""
    size, hidden_size, num_layers, words, places = 768, 3072, 12, 40_478, 512
    reader = TransformerBackboneConfig.model_validate(
        {
            "hidden_size": size,
            "num_layers": num_layers,
            "attention": {
                "multi_head": {"num_heads": 12, "bias": True},
                "score": {"type": "scaled-dot"},
            },
            "feed_forward": [{"intermediate_size": hidden_size, "activation": "gelu"}],
        }
    )
    positions = LearnedEncodingConfig(max_positions=places)
    with torch.device("meta"):
        embedding = TokenEmbedding(
            words, size, dropout=0.0, position_combiner=positions.build(embedding_size=size)
        )
        actual = learned(reader.build(input_size=size)) + learned(embedding)
    layer = 4 * (size**2 + size) + 2 * size * hidden_size + hidden_size + size + 4 * size
    assert actual == num_layers * layer + (words + places) * size
    assert actual == 116_534_784  # as Hugging Face's does
    assert abs(actual / 117e6 - 1) < 0.02
