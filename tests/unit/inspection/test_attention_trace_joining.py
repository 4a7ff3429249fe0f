"""Concatenating the records of decoding steps."""

import pytest
import torch

from heedful.acceleration.registry import accelerate_for_inference
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
        hypotheses = model.search(
            sources, beam_size=width, max_lengths=limits, length_penalty=LengthPenalty()
        )
    return records, hypotheses


@pytest.mark.parametrize("width", [1, 4])
@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: build(SYSTEM), id="no heads"),
        pytest.param(lambda: accelerate_for_inference(build(SYSTEM), "cpu"), id="accelerated"),
        pytest.param(with_heads, id="heads"),
    ],
)
def test_rows_traced_back_through_a_search(width, make):
    records, hypotheses = searched(make(), width)
    joined = concatenate_steps(records)
    assert joined.weights.size(2) == len(records)
    # The cumulative weights of a row are the sum of the maps it was traced back through.
    torch.testing.assert_close(joined.cumulative_weights[1], joined.weights.sum(2))
    maps = joined.weights.mean(dim=1).float()
    longest = max(
        (hypothesis for row in hypotheses for hypothesis in row),
        key=lambda hypothesis: len(hypothesis.tokens),
    )
    assert len(longest.tokens) == len(records) - 1
    expected = torch.from_numpy(longest.weights)
    assert any(torch.allclose(each[:-1], expected) for each in maps)


def error_of(records):
    with pytest.raises(DataError) as caught:
        concatenate_steps(records)
    return str(caught.value)


def test_no_records_reported():
    assert (
        error_of([]) == "trace: the records must be of one module, but are of none\n"
        "  select the records of one module_path"
    )


def test_records_of_several_modules_reported():
    model = torch.nn.ModuleDict({"one": build(SYSTEM), "other": build(SYSTEM)})
    with trace_attention(model) as records:
        for part in model.values():
            part(batch(store(), [0]))
    assert error_of(records) == (
        "trace: the records must be of one module, but are of 2: one.decoder.wiring.attention, "
        "other.decoder.wiring.attention\n  select the records of one module_path"
    )


def test_records_of_two_sequences_reported():
    model, examples = build(SYSTEM), batch(store(), [0])
    with trace_attention(model) as records:
        model(examples)
        model(examples)
    last = examples.decoder_inputs.size(1) - 1
    assert error_of(records) == (
        f"trace of 'decoder.wiring.attention': step 0 does not follow step {last}\n"
        "  trace one sequence or one search at a time, and all of its queries"
    )


def test_rows_of_another_sequence_reported():
    model, examples = build(SYSTEM), batch(store(), [2, 5])
    with trace_attention(model) as records:
        model(examples)
        model(examples._replace(decoder_inputs=examples.decoder_inputs.flip(1)))
    half = len(records) // 2
    assert error_of([*records[:1], records[half + 1]]) == (
        "trace of 'decoder.wiring.attention': row 0 of step 1 continues no row of the step "
        "before\n  trace one sequence or one search at a time"
    )
