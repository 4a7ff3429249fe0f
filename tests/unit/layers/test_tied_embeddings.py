import pytest
import torch
from torch import nn

from heedful.errors import ConfigError
from heedful.layers.embeddings import (
    TokenEmbedding,
    check_shared_vocabulary,
    share_embeddings,
    tie_weights,
)


def test_tied_projection_uses_the_embeddings():
    embedding, projection = TokenEmbedding(7, 4, dropout=0.0), nn.Linear(4, 7)
    tie_weights(projection, embedding)
    assert projection.weight is embedding.embedding.weight
    projection(torch.ones(1, 4)).sum().backward()
    assert (embedding.embedding.weight.grad == 1).all()


def test_shared_embeddings_are_one_parameter():
    one, other = TokenEmbedding(7, 4, dropout=0.0), TokenEmbedding(7, 4, dropout=0.0)
    share_embeddings(one, other)
    assert one.embedding.weight is other.embedding.weight


def test_tying_different_sizes_raises():
    with pytest.raises(ConfigError) as caught:
        tie_weights(nn.Linear(5, 7), TokenEmbedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: output weights have size 5, but embeddings have size 4\n"
        "  make both sizes equal, or set embeddings to 'separate'"
    )


def test_sharing_different_sizes_raises():
    with pytest.raises(ConfigError) as caught:
        share_embeddings(TokenEmbedding(7, 5, dropout=0.0), TokenEmbedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: source embeddings have size 5, but target embeddings have size 4\n"
        "  make both sizes equal, or set embeddings to 'separate'"
    )


@pytest.mark.parametrize(
    "try_to",
    [
        lambda: check_shared_vocabulary(8, 7),
        lambda: share_embeddings(
            TokenEmbedding(8, 4, dropout=0.0), TokenEmbedding(7, 4, dropout=0.0)
        ),
    ],
    ids=["ask", "share"],
)
def test_sharing_different_vocabularies_raises(try_to):
    with pytest.raises(ConfigError) as caught:
        try_to()
    assert str(caught.value) == (
        "embeddings: the source vocabulary has 8 tokens, but the target vocabulary has 7\n"
        "  set tokenizers.type to 'shared', or embeddings to 'separate'"
    )
