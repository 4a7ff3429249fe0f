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


def test_a_word_is_said_as_it_is_read():
    embedding, projection = TokenEmbedding(7, 4, dropout=0.0), nn.Linear(4, 7)
    tie_weights(projection, embedding)
    assert projection.weight is embedding.embedding.weight
    projection(torch.ones(1, 4)).sum().backward()
    assert (embedding.embedding.weight.grad == 1).all()


def test_words_of_both_sides_are_read_alike():
    one, other = TokenEmbedding(7, 4, dropout=0.0), TokenEmbedding(7, 4, dropout=0.0)
    share_embeddings(one, other)
    assert one.embedding.weight is other.embedding.weight


def test_a_word_of_two_widths_cannot_be_tied():
    with pytest.raises(ConfigError) as caught:
        tie_weights(nn.Linear(5, 7), TokenEmbedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: a word is said by a vector of 5 numbers and read by one of 4\n"
        "  make both widths the same, or do not tie them"
    )


def test_words_of_two_widths_cannot_be_shared():
    with pytest.raises(ConfigError) as caught:
        share_embeddings(TokenEmbedding(7, 5, dropout=0.0), TokenEmbedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: words of both sides cannot share vectors: those of the source have 5 "
        "numbers and those of the target 4\n"
        "  make both widths the same, or keep embeddings separate"
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
def test_two_vocabularies_cannot_be_shared(try_to):
    with pytest.raises(ConfigError) as caught:
        try_to()
    assert str(caught.value) == (
        "embeddings: words of both sides cannot share vectors: the source has 8 tokens and the "
        "target 7\n"
        "  set tokenizers.type to 'shared', or keep embeddings separate"
    )
