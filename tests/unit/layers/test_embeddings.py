import torch

from heedful.layers.embeddings import Embedding
from heedful.text.vocabulary import PAD


def test_padding_is_zero_and_stays_so():
    embedding = Embedding(6, 4, dropout=0.0)
    tokens = torch.tensor([[5, PAD]])
    embedding(tokens).sum().backward()
    assert (embedding(tokens)[0, 1] == 0).all()
    assert (embedding.table.weight.grad[PAD] == 0).all()


def test_vectors_have_length_one_on_average():
    table = Embedding(2000, 64, dropout=0.0).table.weight[4:]
    assert abs(table.square().sum(-1).mean().item() - 1) < 0.05
