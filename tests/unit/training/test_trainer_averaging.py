import pytest
import torch
from torch import nn

from heedful.training.trainer import EMAConfig, ExponentialMovingAverage


class Counted(nn.Module):
    """A weight in two places, one that is counted, and a buffer of whole numbers."""

    def __init__(self):
        super().__init__()
        self.one = nn.Linear(2, 2)
        self.two = nn.Linear(2, 2)
        self.two.weight = self.one.weight
        self.register_buffer("calls", torch.tensor(0))


def move(model, generator):
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator))
        model.calls.add_(1)


def test_ema_follows_the_formula():
    generator, model = torch.Generator().manual_seed(0), Counted()
    average = ExponentialMovingAverage(model, decay=0.7)
    wanted = model.one.bias.detach().double()
    for step in range(1, 40):
        move(model, generator)
        average.update(step)
        kept = min(0.7, (1 + step) / (10 + step))
        wanted = kept * wanted + (1 - kept) * model.one.bias.detach().double()
    torch.testing.assert_close(
        average.state_dict()["one.bias"].double(), wanted, rtol=1e-6, atol=1e-6
    )
    assert average.state_dict()["calls"] == 39


def test_tied_parameter_is_averaged_once():
    assert set(ExponentialMovingAverage(Counted(), 0.9).state_dict()) == {
        *("one.weight", "one.bias", "two.bias", "calls"),
    }


def test_average_parameters_swapped_in_and_restored_exactly():
    generator, model = torch.Generator().manual_seed(0), Counted()
    average = ExponentialMovingAverage(model, decay=0.9)
    move(model, generator)
    average.update(1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}

    def look():
        with average.average_parameters():
            assert torch.equal(model.two.weight, average.state_dict()["one.weight"])
            assert not torch.equal(model.one.bias, before["one.bias"])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        look()
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_saved_ema_resumes_exactly():
    generator, model = torch.Generator().manual_seed(0), Counted()
    whole, first, second = (ExponentialMovingAverage(model, decay=0.5) for _ in range(3))
    for step in range(1, 9):
        move(model, generator)
        whole.update(step)
        (first if step <= 4 else second).update(step)
        if step == 4:
            second.load_state_dict(
                {name: each.clone() for name, each in first.state_dict().items()}
            )
    for name, tensor in whole.state_dict().items():
        assert torch.equal(tensor, second.state_dict()[name])


def test_empty_state_starts_ema_at_the_parameters():
    model = Counted()
    average = ExponentialMovingAverage(model, decay=0.5)
    move(model, torch.Generator().manual_seed(0))
    average.load_state_dict({})
    assert torch.equal(average.state_dict()["one.bias"], model.one.bias)


def test_ema_does_not_change_training():
    finals = []
    for is_averaged in (False, True):
        torch.manual_seed(0)
        model = nn.Linear(3, 3)
        average = ExponentialMovingAverage(model, EMAConfig().decay) if is_averaged else None
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        for step in range(1, 6):
            model(torch.ones(3) * step).square().sum().backward()
            optimizer.step()
            if average is not None:
                average.update(step)
                with average.average_parameters():
                    model(torch.ones(3))
        finals.append(model.weight.detach())
    assert torch.equal(*finals)
