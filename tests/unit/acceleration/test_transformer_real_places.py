"""Real places: a stack that reads no padding reads what the layers do."""

import pytest
import torch

from heedful.acceleration import transformer
from heedful.acceleration.transformer import Unpadding
from heedful.inspection.attention_trace import trace_attention
from heedful.layers.transformer import TransformerConfigBase
from heedful.models.transformer import TransformerDecoderConfig
from tests.unit.acceleration.usual_layers import DEFAULT_METRICS, OTHERS

SIZE, LENGTHS = 8, torch.tensor([5, 1, 3])
MASK = torch.arange(5) < LENGTHS[:, None]


def make(settings):
    torch.manual_seed(1)
    config = TransformerConfigBase.model_validate(
        {"hidden_size": SIZE, "num_layers": 2, "dropout": 0.3}
        | {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
        | settings
    )
    stack = config.build_stack(config_path="encoder").double().eval()
    for weight in stack.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return stack


@pytest.fixture
def counted(monkeypatch):
    calls = []
    take = Unpadding.unpad
    monkeypatch.setattr(Unpadding, "unpad", lambda *given: calls.append(0) or take(*given))
    return calls


def inputs():
    return torch.randn(3, 5, SIZE, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("settings", DEFAULT_METRICS, ids=str)
def test_places_that_are_there_come_out_as_the_layers_give_them(settings, counted):
    stack = make(settings)
    wanted, _ = stack.forward_bidirectional(inputs(), LENGTHS)
    assert not counted
    with torch.no_grad():
        found, auxiliary_losses = stack.forward_bidirectional(inputs(), LENGTHS)
    assert counted
    assert not auxiliary_losses
    torch.testing.assert_close(found[MASK], wanted[MASK].detach())


def test_what_stands_in_padding_is_not_read():
    stack, spoilt = make({}), inputs()
    spoilt[~MASK] = torch.nan
    with torch.no_grad():
        found, wanted = (
            stack.forward_bidirectional(spoilt, LENGTHS)[0],
            stack.forward_bidirectional(inputs(), LENGTHS)[0],
        )
    assert torch.equal(found, wanted)


def test_a_sequence_of_no_places_disturbs_nobody():
    stack, lengths = make({}), torch.tensor([5, 0, 3])
    with torch.no_grad():
        found, _ = stack.forward_bidirectional(inputs(), lengths)
        wanted, _ = stack.forward_bidirectional(inputs(), LENGTHS)
    torch.testing.assert_close(found[[0, 2]], wanted[[0, 2]])
    assert not found[1].any() or stack.norm is not None


@pytest.mark.parametrize("settings", DEFAULT_METRICS, ids=str)
def test_a_source_is_remembered_as_the_layers_remember_it(settings):
    config = TransformerDecoderConfig.model_validate(
        {"type": "transformer", "hidden_size": SIZE, "num_layers": 2}
        | {"attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}}
        | settings
    )
    stack = config.build(vocab_size=5, memory_size=SIZE).double().eval().stack
    wanted = stack.build_memory(inputs(), MASK.unsqueeze(1))
    with torch.no_grad():
        found = stack.build_memory(inputs(), MASK.unsqueeze(1))
    for one, other in zip(found, wanted, strict=True):
        seen = other.mask.expand_as(other.values[..., :1].mT).squeeze(-2)
        assert torch.equal(one.mask, other.mask)
        torch.testing.assert_close(one.values[seen], other.values[seen].detach())
        torch.testing.assert_close(one.keys[seen], other.keys[seen].detach())


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_layers_of_other_kinds_read_the_whole_table(settings, counted):
    with torch.no_grad():
        make(settings).forward_bidirectional(inputs(), LENGTHS)
    assert not counted


def test_whoever_learns_or_is_watched_gets_the_plain_form(counted):
    stack = make({})
    stack.forward_bidirectional(inputs(), LENGTHS)
    with torch.no_grad(), trace_attention(stack) as records:
        stack.forward_bidirectional(inputs(), LENGTHS)
    assert records
    with torch.no_grad():
        stack.train().forward_bidirectional(inputs(), LENGTHS)
    assert not counted


def test_a_table_gives_back_what_was_taken_out_of_it():
    table = Unpadding.from_mask(MASK)
    taken = table.unpad(inputs())
    assert len(taken) == int(LENGTHS.sum())
    put = table.pad(taken)
    assert torch.equal(put[MASK], inputs()[MASK])
    assert not put[~MASK].any()
    assert (
        transformer.Unpadding.from_mask(torch.zeros(2, 3, dtype=torch.bool)).indices.tolist() == []
    )
