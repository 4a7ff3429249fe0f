import pytest
import torch
from torch import nn

from heedful.errors import ConfigError
from heedful.layers.embeddings import Embedding
from heedful.layers.tying import require_one_vocabulary, share, tie


def test_a_word_is_said_as_it_is_read():
    embedding, projection = Embedding(7, 4, dropout=0.0), nn.Linear(4, 7)
    tie(projection, embedding)
    assert projection.weight is embedding.table.weight
    projection(torch.ones(1, 4)).sum().backward()
    assert (embedding.table.weight.grad == 1).all()


def test_words_of_both_sides_are_read_alike():
    one, other = Embedding(7, 4, dropout=0.0), Embedding(7, 4, dropout=0.0)
    share(one, other)
    assert one.table.weight is other.table.weight


def test_a_word_of_two_widths_cannot_be_tied():
    with pytest.raises(ConfigError) as caught:
        tie(nn.Linear(5, 7), Embedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: a word is said by a vector of 5 numbers and read by one of 4\n"
        "  make both widths the same, or do not tie them"
    )


def test_words_of_two_widths_cannot_be_shared():
    with pytest.raises(ConfigError) as caught:
        share(Embedding(7, 5, dropout=0.0), Embedding(7, 4, dropout=0.0))
    assert str(caught.value) == (
        "embeddings: words of both sides cannot share vectors: those of the source have 5 "
        "numbers and those of the target 4\n"
        "  make both widths the same, or keep embeddings separate"
    )


@pytest.mark.parametrize(
    "try_to",
    [
        lambda: require_one_vocabulary(8, 7),
        lambda: share(Embedding(8, 4, dropout=0.0), Embedding(7, 4, dropout=0.0)),
    ],
    ids=["ask", "share"],
)
def test_two_vocabularies_cannot_be_shared(try_to):
    with pytest.raises(ConfigError) as caught:
        try_to()
    assert str(caught.value) == (
        "embeddings: words of both sides cannot share vectors: the source has 8 tokens and the "
        "target 7\n"
        "  set text.kind to 'shared', or keep embeddings separate"
    )
