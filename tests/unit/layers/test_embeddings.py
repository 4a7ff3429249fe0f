import torch
from torch import nn

from heedful.attention.positional_encoding import PositionCombiner, SinusoidalEncoding
from heedful.layers.embeddings import TokenEmbedding
from heedful.tokenization.vocabulary import PAD


def test_padding_embedding_is_and_stays_zero():
    embedding = TokenEmbedding(6, 4, dropout=0.0)
    tokens = torch.tensor([[5, PAD]])
    embedding(tokens).sum().backward()
    assert (embedding(tokens)[0, 1] == 0).all()
    assert (embedding.embedding.weight.grad[PAD] == 0).all()


def test_embeddings_have_norm_one_on_average():
    table = TokenEmbedding(2000, 64, dropout=0.0).embedding.weight[4:]
    assert abs(table.square().sum(-1).mean().item() - 1) < 0.05


def test_positions_added_after_scaling_and_before_the_norm():
    placing = PositionCombiner(SinusoidalEncoding(16), input_size=16)
    norm = nn.LayerNorm(16)
    embedding = TokenEmbedding(
        9, 16, dropout=0.0, position_combiner=placing, scale_embeddings=True, norm=norm
    )
    tokens, first = torch.tensor([[4, 8], [5, 5]]), torch.tensor([3, 0])
    words = 4 * embedding.embedding.weight[tokens]
    places = torch.stack([placing.encoding(torch.arange(n, n + 2)) for n in (3, 0)])
    torch.testing.assert_close(embedding(tokens, first), norm(words + places))


def test_embeddings_have_the_scale_of_the_positional_encoding():
    waves = PositionCombiner(SinusoidalEncoding(64), input_size=64)
    for scaled in (True, False):
        embedding = TokenEmbedding(
            2000, 64, dropout=0.0, position_combiner=waves, scale_embeddings=scaled
        )
        words = embedding.scale * embedding.embedding.weight[4:]
        assert abs(words.std().item() - 1) < 0.05


# Past the longest text that was learned from: waves go on, each place unlike the last; learned
# places have no vector of their own any more and all look like the last one.
