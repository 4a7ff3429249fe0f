"""Records of steps, put together, and what cannot be."""

import pytest
import torch

from heedful.errors import DataError
from heedful.inspection.attention_trace import concatenate_steps, trace_attention
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.search import LengthPenalty
from tests.catalogue import VOCABULARY, batch, build, store

SYSTEM = "gru, step-then-attend"


def with_heads():
    torch.manual_seed(1)
    settings = {
        "encoder": {"type": "recurrent", "hidden_size": 6},
        "decoder": {"type": "recurrent", "attention": {"multi_head": {"num_heads": 2}}},
    }
    config = EncoderDecoderConfig.model_validate(settings)
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double().eval()


def searched(model, width, rows=(0, 3, 5, 6)):
    sources = batch(store(), list(rows)).sources
    limits = torch.full((len(rows),), 6)
    with trace_attention(model) as records:
        found = model.search(
            sources, beam_size=width, max_lengths=limits, length_penalty=LengthPenalty()
        )
    return records, found


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize("make", [lambda: build(SYSTEM), with_heads], ids=["no heads", "heads"])
def test_rows_are_followed_through_a_search(width, make):
    records, found = searched(make(), width)
    joined = concatenate_steps(records)
    assert joined.weights.size(2) == len(records)
    # What a row has looked at in all is the sum of the maps it was followed back through.
    torch.testing.assert_close(joined.cumulative_weights[1], joined.weights.sum(2))
    maps = joined.weights.mean(dim=1).float()
    longest = max((each for row in found for each in row), key=lambda each: len(each.tokens))
    assert len(longest.tokens) == len(records) - 1
    wanted = torch.from_numpy(longest.weights)
    assert any(torch.allclose(each[:-1], wanted) for each in maps)


def test_a_search_does_reorder_rows():
    records, _ = searched(build(SYSTEM), 4)
    joined = concatenate_steps(records).weights
    as_they_stood = [record.weights for record in records]
    assert any(
        not torch.equal(joined[:, :, step : step + 1], weights)
        for step, weights in enumerate(as_they_stood)
        if len(weights) == len(joined)
    )


def complaint(records):
    with pytest.raises(DataError) as caught:
        concatenate_steps(records)
    return str(caught.value)


def test_nothing_cannot_be_joined():
    assert (
        complaint([]) == "trace: one site can be joined, found no records\n  pick those of one site"
    )


def test_several_sites_cannot_be_joined():
    model = torch.nn.ModuleDict({"one": build(SYSTEM), "other": build(SYSTEM)})
    with trace_attention(model) as records:
        for part in model.values():
            part(batch(store(), [0]))
    assert complaint(records) == (
        "trace: one site can be joined, found 2 sites: one.decoder.wiring.attention, "
        "other.decoder.wiring.attention\n  pick those of one site"
    )


def test_a_second_sequence_does_not_follow_on_the_first():
    model, examples = build(SYSTEM), batch(store(), [0])
    with trace_attention(model) as records:
        model(examples)
        model(examples)
    last = examples.decoder_inputs.size(1) - 1
    assert complaint(records) == (
        f"trace of 'decoder.wiring.attention': step 0 does not follow on step {last}\n"
        "  trace one sequence or one search at a time, and all of its queries"
    )


def test_rows_from_elsewhere_do_not_follow():
    model, examples = build(SYSTEM), batch(store(), [2, 5])
    with trace_attention(model) as records:
        model(examples)
        model(examples._replace(decoder_inputs=examples.decoder_inputs.flip(1)))
    half = len(records) // 2
    assert complaint([*records[:1], records[half + 1]]) == (
        "trace of 'decoder.wiring.attention': row 0 of step 1 goes on from no row of the step "
        "before\n  trace one sequence or one search at a time"
    )
