"""Decoding with captured steps equals decoding with plain ones.

Without a GPU the steps run as they would be captured: with padded rows and sources, and with inputs
and outputs in fixed tensors.
"""

import copy

import pytest
import torch

from heedful.acceleration import tuning
from heedful.acceleration.cuda import captured_models, search_graphs
from heedful.acceleration.cuda.captured_models import CapturedEncoderDecoderModel, CapturedSteps
from heedful.acceleration.cuda.search_graphs import round_up
from heedful.acceleration.registry import FOR_INFERENCE, accelerate
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    CoveragePenalty,
    LengthPenalty,
    Trellis,
    heuristic_stopping,
    optimal_stopping,
)
from heedful.search.hypotheses import NaNLogProbsError
from heedful.search.logits_processors import ForbiddenTokens, MinLength
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import EOS
from tests.catalogue import SYSTEMS, batch, build, store

GPU = torch.device("cuda")
ROWS = [[0, 1, 2, 5, 6], [3, 5, 0, 6, 4]]
MODEL_CLASSES = [
    entry for entry in FOR_INFERENCE if entry.replacement.__module__ == captured_models.__name__
]


@pytest.fixture
def on_cpu(monkeypatch):
    """Let captured steps run on a CPU."""
    monkeypatch.setattr(captured_models, "GRAPH_DEVICE_TYPE", "cpu")


def build_pair(name, device="cpu"):
    """Return a model and the same one with captured steps, or None if it has no such form."""
    model = copy.deepcopy(build(name)).eval().to(device)
    if device == "cuda":
        captured = accelerate(model, GPU)  # with all that replaces its parts
        return model, captured if isinstance(captured, CapturedSteps) else None
    captured = copy.copy(model)
    for entry in MODEL_CLASSES:
        if entry._replace(device_types=("cpu", "cuda")).matches(model, torch.device(device)):
            captured.__class__ = entry.replacement
            return model, captured
    return model, None


def sources(rows, device="cpu"):
    tokens, lengths = batch(store(), rows).sources
    return type(batch(store(), rows).sources)(tokens.to(device), lengths.to(device))


def search(model, examples, beam_size, *processors):
    limits = examples.lengths + 4
    return model.search(
        examples,
        beam_size=beam_size,
        max_lengths=limits,
        length_penalty=LengthPenalty(0.6),
        options=BeamSearchOptions(processors=processors),
    )


def assert_same(actual, expected, tolerance=1e-5):
    for hypotheses, others in zip(actual, expected, strict=True):
        assert [item.tokens for item in hypotheses] == [item.tokens for item in others]
        for hypothesis, other in zip(hypotheses, others, strict=True):
            assert hypothesis.score == pytest.approx(other.score, rel=tolerance, abs=tolerance)
            assert hypothesis.weights.shape == other.weights.shape
            assert hypothesis.weights == pytest.approx(other.weights, abs=tolerance)


def check_searches(name, device):
    model, captured = build_pair(name, device)
    if captured is None:
        return None
    for beam_size in (1, 3):
        for rows in (ROWS[0], ROWS[1], ROWS[0]):  # the first of a shape runs as plain steps
            examples = sources(rows, device)
            expected = search(model, examples, beam_size)
            assert_same(search(captured, examples, beam_size), expected)
    return captured


NAMES = [
    "gru, attend-then-step",
    "lstm, step-then-attend",
    "transformer over convolutions",
    "feature coverage",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.wide
def test_search_with_static_steps_equals_plain_search(name, on_cpu):
    captured = check_searches(name, "cpu")
    assert captured._chain_cache._chains


@pytest.mark.parametrize("name", NAMES[1:3])
@pytest.mark.wide
def test_greedy_search_on_the_device_equals_plain_search(name, on_cpu):
    model, captured = build_pair(name)
    for rows in (*ROWS, ROWS[0], [1], [1], [1]):
        examples = sources(rows)
        for processor in ((), (MinLength(examples.lengths, eos=EOS),), (ForbiddenTokens([5]),)):
            expected = search(model, examples, 1, *processor)
            assert_same(search(captured, examples, 1, *processor), expected)
    chains = captured._chain_cache._chains.values()
    assert [list(chain.searches) for chain in chains] == [[1], [1]]


@pytest.mark.parametrize("stopping", [heuristic_stopping, optimal_stopping, FIRST_FINISHED])
@pytest.mark.parametrize("beam_size", [2, 5])
def test_beam_search_on_the_device_equals_plain_search(beam_size, stopping, on_cpu):
    model, captured = build_pair(NAMES[1])
    penalty = CoveragePenalty(0.3)
    for rows in (*ROWS, ROWS[0], [1], [1]):
        examples = sources(rows)
        for processors in ((), (MinLength(examples.lengths, eos=EOS),)):
            options = BeamSearchOptions(penalty, stopping, processors=processors)
            plain, other = Trellis(), Trellis()
            found = [
                searched.search(
                    examples,
                    beam_size=beam_size,
                    max_lengths=examples.lengths + 4,
                    length_penalty=LengthPenalty(0.6),
                    options=options,
                    trellis=trellis,
                )
                for searched, trellis in ((model, plain), (captured, other))
            ]
            assert_same(*found)
            for sentence in range(len(rows)):
                trees = (trellis.tree(sentence, eos=EOS) for trellis in (plain, other))
                first, second = ([(node.parent, node.token) for node in tree] for tree in trees)
                assert first == second
    chains = captured._chain_cache._chains.values()
    assert [list(chain.searches) for chain in chains] == [[beam_size], [beam_size]]


def test_beam_larger_than_the_vocabulary_is_searched_with_plain_steps(on_cpu, monkeypatch):
    monkeypatch.setattr(search_graphs, "leave_capture", lambda device: None)
    model, captured = build_pair(NAMES[0])
    examples = sources([1, 2])
    for _ in range(3):
        assert_same(search(captured, examples, 12), search(model, examples, 12))
    assert "vocabulary" in captured._chain_cache.plain_reason


def test_greedy_search_with_a_model_that_fails_reports_what_the_plain_one_does(on_cpu):
    _, captured = build_pair(NAMES[0])
    examples = sources(ROWS[0])
    for _ in range(2):
        search(captured, examples, 1)
    with torch.no_grad():
        captured.decoder.output_head.projection.bias[7] = torch.nan
    with pytest.raises(NaNLogProbsError):
        search(captured, examples, 1)


def test_searches_beyond_the_captured_steps_continue_with_plain_ones(on_cpu, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_CAPTURED_STEPS", 3)
    check_searches(NAMES[2], "cpu")


def test_two_searches_at_a_time_do_not_share_a_chain(on_cpu):
    model, captured = build_pair(NAMES[0])
    examples = sources(ROWS[0])
    with torch.inference_mode():
        captured.initial_state(examples)
        first, second = captured.initial_state(examples), captured.initial_state(examples)
        tokens = torch.full_like(examples.lengths, 5)
        expected = model.step(tokens, model.initial_state(examples)).log_probs
        for state in (first, second):
            torch.testing.assert_close(captured.step(tokens, state).log_probs, expected)


def test_forward_hooks_see_every_step(on_cpu):
    _, captured = build_pair(NAMES[0])
    calls = []
    handle = captured.decoder.output_head.register_forward_hook(lambda *args: calls.append(1))
    for _ in range(3):
        calls.clear()
        search(captured, sources(ROWS[0]), 1)
        assert calls
    handle.remove()


def test_oldest_shape_is_dropped(on_cpu, monkeypatch):
    monkeypatch.setattr(tuning, "MAX_CAPTURED_SHAPES", 1)
    _, captured = build_pair(NAMES[0])
    for rows in (ROWS[0], ROWS[0], [1], [1]):
        search(captured, sources(rows), 1)
    assert [key.sizes[0] for key in captured._chain_cache._chains] == [1]


def test_rounded_counts_are_at_most_a_quarter_larger():
    for count in range(1, 200):
        assert count <= round_up(count) <= max(count, 1.25 * count)


def test_models_on_a_gpu_have_captured_steps():
    model = build(NAMES[0])
    assert type(model) is EncoderDecoderModel
    assert type(accelerate(model, GPU)) is CapturedEncoderDecoderModel


def test_shapes_captured_at_once_after_a_few_batches(on_cpu, monkeypatch):
    monkeypatch.setattr(tuning, "NUM_PLAIN_BATCHES", 2)
    model, captured = build_pair(NAMES[0])
    for rows in ([0, 1, 2], [0, 1], [0]):
        examples = sources(rows)
        assert_same(search(captured, examples, 1), search(model, examples, 1))
    assert [key.sizes[0] for key in captured._chain_cache._chains] == [1]


def check_samples(name, device):
    model, captured = build_pair(name, device)
    for rows in (*ROWS, ROWS[0]):
        examples = sources(rows, device)
        limits = torch.full_like(examples.lengths, 6)
        options = {"max_lengths": limits, "options": SamplingOptions(), "seed": 3}
        expected = model.sample(examples, 3, **options)
        assert_same(captured.sample(examples, 3, **options), expected)
    assert captured._chain_cache._chains


def test_samples_with_static_steps_equal_plain_samples(on_cpu):
    check_samples(NAMES[0], "cpu")


@pytest.mark.gpu
@pytest.mark.parametrize("name", [*NAMES, "transformer"])
def test_samples_with_captured_steps_equal_plain_samples(name):
    check_samples(name, "cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("name", SYSTEMS)
def test_search_with_captured_steps_equals_plain_search(name):
    captured = check_searches(name, "cuda")
    if captured is not None and "experts" not in name:
        assert captured._chain_cache.plain_reason == ""
