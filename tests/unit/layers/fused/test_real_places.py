"""Real places: a stack that reads no padding reads what the layers do."""

import pytest
import torch

from heedful.decoders.transformer import TransformerDecoderConfig
from heedful.inspection.trace import trace
from heedful.layers.fused import real_places
from heedful.layers.fused.real_places import Table
from heedful.layers.transformer_choices import TransformerParts
from tests.unit.layers.fused.usual_layers import OTHERS, USUAL

SIZE, LENGTHS = 8, torch.tensor([5, 1, 3])
MASK = torch.arange(5) < LENGTHS[:, None]


def make(settings):
    torch.manual_seed(1)
    config = TransformerParts.model_validate(
        {"size": SIZE, "num_layers": 2, "dropout": 0.3}
        | {"attention": {"score": {"kind": "scaled-dot"}, "heads": {"num_heads": 2}}}
        | settings
    )
    stack = config.stack(at="encoder").double().eval()
    for weight in stack.parameters():
        torch.nn.init.normal_(weight, std=0.7)
    return stack


@pytest.fixture
def counted(monkeypatch):
    calls = []
    take = Table.take
    monkeypatch.setattr(Table, "take", lambda *given: calls.append(0) or take(*given))
    return calls


def inputs():
    return torch.randn(3, 5, SIZE, generator=torch.Generator().manual_seed(2)).double()


@pytest.mark.parametrize("settings", USUAL, ids=str)
def test_places_that_are_there_come_out_as_the_layers_give_them(settings, counted):
    stack = make(settings)
    wanted, _ = stack.both_ways(inputs(), LENGTHS)
    assert not counted
    with torch.no_grad():
        found, penalties = stack.both_ways(inputs(), LENGTHS)
    assert counted
    assert not penalties
    torch.testing.assert_close(found[MASK], wanted[MASK].detach())


def test_what_stands_in_padding_is_not_read():
    stack, spoilt = make({}), inputs()
    spoilt[~MASK] = torch.nan
    with torch.no_grad():
        found, wanted = stack.both_ways(spoilt, LENGTHS)[0], stack.both_ways(inputs(), LENGTHS)[0]
    assert torch.equal(found, wanted)


def test_a_sequence_of_no_places_disturbs_nobody():
    stack, lengths = make({}), torch.tensor([5, 0, 3])
    with torch.no_grad():
        found, _ = stack.both_ways(inputs(), lengths)
        wanted, _ = stack.both_ways(inputs(), LENGTHS)
    torch.testing.assert_close(found[[0, 2]], wanted[[0, 2]])
    assert not found[1].any() or stack.norm is not None


@pytest.mark.parametrize("settings", USUAL, ids=str)
def test_a_source_is_remembered_as_the_layers_remember_it(settings):
    config = TransformerDecoderConfig.model_validate(
        {"kind": "transformer", "size": SIZE, "num_layers": 2}
        | {"attention": {"score": {"kind": "scaled-dot"}, "heads": {"num_heads": 2}}}
        | settings
    )
    stack = config.build(vocabulary_size=5, memory_size=SIZE).double().eval().stack
    wanted = stack.remember(inputs(), MASK.unsqueeze(1))
    with torch.no_grad():
        found = stack.remember(inputs(), MASK.unsqueeze(1))
    for one, other in zip(found, wanted, strict=True):
        seen = other.mask.expand_as(other.values[..., :1].mT).squeeze(-2)
        assert torch.equal(one.mask, other.mask)
        torch.testing.assert_close(one.values[seen], other.values[seen].detach())
        torch.testing.assert_close(one.keys[seen], other.keys[seen].detach())


@pytest.mark.parametrize("settings", OTHERS.values(), ids=OTHERS)
def test_layers_of_other_kinds_read_the_whole_table(settings, counted):
    with torch.no_grad():
        make(settings).both_ways(inputs(), LENGTHS)
    assert not counted


def test_whoever_learns_or_is_watched_gets_the_plain_form(counted):
    stack = make({})
    stack.both_ways(inputs(), LENGTHS)
    with torch.no_grad(), trace(stack) as records:
        stack.both_ways(inputs(), LENGTHS)
    assert records
    with torch.no_grad():
        stack.train().both_ways(inputs(), LENGTHS)
    assert not counted


def test_a_table_gives_back_what_was_taken_out_of_it():
    table = Table.of(MASK)
    taken = table.take(inputs())
    assert len(taken) == int(LENGTHS.sum())
    put = table.put(taken)
    assert torch.equal(put[MASK], inputs()[MASK])
    assert not put[~MASK].any()
    assert real_places.Table.of(torch.zeros(2, 3, dtype=torch.bool)).numbers.tolist() == []
