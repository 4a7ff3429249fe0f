import torch

from heedful.attention import padding


def test_padding_hides_what_lies_beyond_the_end():
    wanted = [[[True, False, False]], [[True, True, True]], [[False, False, False]]]
    assert padding(torch.tensor([1, 3, 0]), 3).tolist() == wanted


def test_masks_combine_with_and_and_or():
    one, other = padding(torch.tensor([1]), 3), padding(torch.tensor([2]), 3)
    assert torch.equal(one & other, one)
    assert torch.equal(one | other, other)
