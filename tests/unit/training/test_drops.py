import torch

from heedful.layers.experts import Experts
from heedful.training.drops import DropCount

MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])
INPUTS = torch.rand(2, 4, 3) + 1


def crowded(**settings):
    """Experts of which all positive words want the first."""
    experts = Experts(
        3,
        hidden_size=5,
        num_experts=4,
        num_chosen=1,
        importance_weight=0.0,
        load_weight=0.0,
        **settings,
    )
    with torch.no_grad():
        experts.gate.score.weight[0] = 100.0
    return torch.nn.ModuleList([experts])


def test_the_share_of_drops_is_told_once():
    model = crowded(capacity_factor=0.5)
    drops = DropCount(model)
    assert drops.take() is None
    for _ in range(2):
        model[0](INPUTS, MASK)
    # Of four words there is room for ceil(0.5 * 4 * 1 / 4) = 1.
    assert drops.take() == 3 / 4
    assert drops.take() is None


def test_asking_a_trained_model_counts_for_nothing():
    model = crowded(capacity_factor=0.5)
    drops = DropCount(model)
    model.eval()[0](INPUTS, MASK)
    assert drops.take() is None


def test_without_a_capacity_there_is_nothing_to_tell():
    model = crowded()
    drops = DropCount(model)
    model[0](INPUTS, MASK)
    assert drops.take() is None
