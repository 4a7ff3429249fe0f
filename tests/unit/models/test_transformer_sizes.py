"""How many numbers models of the papers' sizes learn, counted by hand.

Ours at the same settings learn exactly as many as the formulas below. Which vectors are counted
is said with each paper's model; norms learn a gain and a bias.
"""

import pytest
import torch

from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.models.transformer import TransformerEncoderConfig

NUM_LAYERS = 6
JOINT_VOCABULARY = 37_000  # Vaswani et al. 2017, section 5.1: "about"


def learned(model):
    return sum(weight.numel() for weight in model.parameters())


def transformer(size, hidden_size, num_heads):
    """A model of these sizes that holds no numbers, only their count."""
    side = {
        "type": "transformer",
        "hidden_size": size,
        "num_layers": NUM_LAYERS,
        "attention": {"multi_head": {"num_heads": num_heads}, "score": {"type": "scaled-dot"}},
        "feed_forward": [{"intermediate_size": hidden_size}],
    }
    config = EncoderDecoderConfig.model_validate(
        {"encoder": side, "decoder": side, "embeddings": "shared"}
    )
    with torch.device("meta"):
        return config.build(source_vocab_size=JOINT_VOCABULARY, target_vocab_size=JOINT_VOCABULARY)


def by_hand(size, hidden_size):
    """Heads have no biases, feed-forward layers and the emission do; the table is one for all."""
    heads = 4 * size**2
    feed_forward = 2 * size * hidden_size + hidden_size + size
    norm = 2 * size
    encoder = NUM_LAYERS * (heads + feed_forward + 2 * norm)
    decoder = NUM_LAYERS * (2 * heads + feed_forward + 3 * norm)
    return encoder + decoder + JOINT_VOCABULARY * size + JOINT_VOCABULARY


@pytest.mark.parametrize(
    ("size", "hidden_size", "num_heads", "papers"),
    [(512, 2048, 8, 65e6), (1024, 4096, 16, 213e6)],
    ids=["base", "big"],
)
def test_base_and_big_have_the_published_number_of_parameters(size, hidden_size, num_heads, papers):
    actual = learned(transformer(size, hidden_size, num_heads))
    assert actual == by_hand(size, hidden_size)
    # 63.1 and 214.2 million. The paper's two are not of one vocabulary: with
    # 37,000 tokens the first comes no nearer than this.
    assert abs(actual / papers - 1) < 0.03


def test_bert_sized_encoder_has_the_published_number_of_parameters():
    """Devlin et al. 2019, BERT-base: 110 million, 30,522 words, 512 places.

    Ours has no vectors for the two segments (1,536 numbers) and no pooling layer above (590,592).
    """
    size, hidden_size, num_layers, words, places = 768, 3072, 12, 30_522, 512
    config = TransformerEncoderConfig.model_validate(
        {
            "hidden_size": size,
            "num_layers": num_layers,
            "attention": {
                "multi_head": {"num_heads": 12, "bias": True},
                "score": {"type": "scaled-dot"},
            },
            "feed_forward": [{"intermediate_size": hidden_size, "activation": "gelu"}],
            "positional_encoding": {"type": "learned", "max_positions": places},
            "embedding_norm": True,
            "scale_embeddings": False,
        }
    )
    with torch.device("meta"):
        actual = learned(config.build(vocab_size=words))
    norm = 2 * size
    layer = 4 * (size**2 + size) + 2 * size * hidden_size + hidden_size + size + 2 * norm
    assert actual == num_layers * layer + (words + places) * size + norm
    assert abs(actual / 110e6 - 1) < 0.02
    assert actual + 2 * size + size**2 + size == 109_482_240  # as Hugging Face's does
