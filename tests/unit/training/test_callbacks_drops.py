import torch

from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.training.callbacks import ExpertOverflowCounter

MASK = torch.tensor([[True, True, True, False], [True, False, False, False]])
INPUTS = torch.rand(2, 4, 3) + 1


def crowded(**settings):
    """Experts of which all positive words want the first."""
    experts = MixtureOfExperts(
        3,
        intermediate_size=5,
        num_experts=4,
        num_experts_per_token=1,
        importance_weight=0.0,
        load_weight=0.0,
        **settings,
    )
    with torch.no_grad():
        experts.gate.score.weight[0] = 100.0
    return torch.nn.ModuleList([experts])


def test_drop_rate_is_reset_when_read():
    model = crowded(capacity_factor=0.5)
    drops = ExpertOverflowCounter(model)
    assert drops.pop_drop_rate() is None
    for _ in range(2):
        model[0](INPUTS, MASK)
    # Of four words there is room for ceil(0.5 * 4 * 1 / 4) = 1.
    assert drops.pop_drop_rate() == 3 / 4
    assert drops.pop_drop_rate() is None


def test_drop_count_ignores_eval_mode():
    model = crowded(capacity_factor=0.5)
    drops = ExpertOverflowCounter(model)
    model.eval()[0](INPUTS, MASK)
    assert drops.pop_drop_rate() is None


def test_drop_rate_is_none_without_capacity():
    model = crowded()
    drops = ExpertOverflowCounter(model)
    model[0](INPUTS, MASK)
    assert drops.pop_drop_rate() is None
