import torch

from heedful.attention import Memory
from heedful.decoders.emission import VocabularyEmission


def test_a_vocabulary_says_every_token_with_a_probability():
    emission = VocabularyEmission(4, 9)
    memory = Memory(torch.zeros(2, 5, 3), torch.zeros(2, 5, 3), torch.ones(2, 1, 5).bool())
    log_probs = emission(torch.randn(2, 3, 4), torch.zeros(2, 3, 5), memory)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3))
