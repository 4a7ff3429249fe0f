import torch
from torch import nn

from heedful.training.ranks import ALONE, Portion


def test_one_rank_alone_is_all_there_is():
    model = nn.Linear(2, 3)
    assert ALONE.is_first
    assert ALONE.world == 1
    assert ALONE.place(model) is ALONE.spread(model) is ALONE.asked(model) is model
    assert ALONE.portion("a batch") == Portion("a batch", 1.0)
    assert ALONE.any(True, False) == (True, False)
    numbers = torch.tensor([1.0, 2.0])
    assert ALONE.total(numbers) is numbers
    assert ALONE.gather({"cpu": numbers}) == [{"cpu": numbers}]
    assert ALONE.weights(model).keys() == {"weight", "bias"}
    ALONE.wait()


def test_one_rank_alone_keeps_nothing_back():
    model = nn.Linear(2, 3)
    with ALONE.apart(model), ALONE.whole(model):
        model(torch.ones(1, 2)).sum().backward()
    assert (model.weight.grad == 1).all()
