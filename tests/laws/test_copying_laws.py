"""Copy heads: sums to one, brute force over repeated and unknown words, search in any batch."""

import numpy as np
import pytest
import torch

from heedful.config.base import type_of, types_in
from heedful.data.text.batching import SourceBatch, collate_pairs, collate_sources
from heedful.models.copying import CopyNetHead, OutputHeadConfig, PointerHead
from heedful.models.ensembles import Ensemble
from heedful.models.output_heads import CopyInputs, HeadSizes
from heedful.search import LengthPenalty
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import EOS, PAD
from tests.catalogue import SYSTEMS, VOCABULARY, build
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide

HEADS = {type_of(head): head for head in types_in(OutputHeadConfig)}
each_head = pytest.mark.parametrize("name", sorted(HEADS.keys() - {"softmax", "marginal"}))
each_system = pytest.mark.parametrize(
    "name", [name for name in SYSTEMS if name.startswith(("pointer-generator,", "copy"))]
)
SIZE, MEMORY, GATE = 5, 6, 7
N = VOCABULARY
# Word 4 twice, an unknown word at positions 1 and 3, and another one; the second text is shorter.
SOURCES = [[4, N + 1, 4, N + 1, N + 4], [7, N + 1]]
TARGETS = [[N + 1, 4, 9, N + 4], [N + 1, 7, 7]]


def head_and_inputs(name, num_steps=3):
    torch.manual_seed(0)
    head = HEADS[name]().build(HeadSizes(SIZE, N, GATE, MEMORY)).double()
    sources = collate_sources([[4, 5, 4, 8, 6], [7, 9]] if name == "pointer" else SOURCES)
    mask = torch.arange(sources.tokens.size(1)) < sources.lengths[:, None]
    states = torch.randn(*sources.tokens.shape, MEMORY, dtype=torch.double) * mask[..., None]
    source = head.build_source(sources.tokens, mask, states)
    scores = torch.randn(2, num_steps, mask.size(1), dtype=torch.double)
    weights = scores.masked_fill(~mask[:, None], -torch.inf).softmax(-1).requires_grad_()
    features = torch.randn(2, num_steps, SIZE, dtype=torch.double, requires_grad=True)
    gate_inputs = torch.randn(2, num_steps, GATE, dtype=torch.double)
    return head, sources, states, features, weights, CopyInputs(source, gate_inputs)


@each_head
def test_copy_distribution_sums_to_one_with_finite_gradients(name):
    head, _, _, features, weights, copying = head_and_inputs(name)
    log_probs = head(features, weights, copying)
    torch.testing.assert_close(log_probs.exp().sum(-1), torch.ones(2, 3, dtype=torch.double))
    log_probs[log_probs > -torch.inf].sum().backward()
    gradients = [item.grad for item in (features, weights) if item.grad is not None]
    assert all(gradient.isfinite().all() for gradient in gradients)
    assert any(gradient.abs().sum() > 0 for gradient in gradients)


def sigmoid(value):
    return 1 / (1 + np.exp(-value))


def expected_probs(name, head, states, features, weights, gate_inputs, tokens):
    """The papers' formulas, word by word, for one position of one row."""
    get = {key: value.detach().numpy() for key, value in head.state_dict().items()}
    if name == "pointer":
        generate, copy = {}, weights
    else:
        logits = get["projection.weight"] @ features + get["projection.bias"]
        if name == "pointer-generator":
            p_gen = sigmoid((get["gate.weight"] @ gate_inputs + get["gate.bias"])[0])
            generated = p_gen * np.exp(logits) / np.exp(logits).sum()
            copy = (1 - p_gen) * weights
        elif name == "copy":
            copy_score = np.exp((get["copy_score.weight"] @ features + get["copy_score.bias"])[0])
            normalizer = np.exp(logits).sum() + copy_score
            generated, copy = np.exp(logits) / normalizer, copy_score / normalizer * weights
        else:
            scores = [
                np.exp(np.tanh(get["key_projection.weight"] @ state) @ features)
                for state in states[: len(tokens)]
            ]
            normalizer = np.exp(logits).sum() + sum(scores)
            generated, copy = np.exp(logits) / normalizer, np.array(scores) / normalizer
        generate = dict(enumerate(generated))
    probs = dict(generate)
    for position, token in enumerate(tokens):
        probs[token] = probs.get(token, 0) + copy[position]
    return probs


@each_head
def test_copy_distribution_equals_brute_force_over_repeated_and_unknown_words(name):
    head, sources, states, features, weights, copying = head_and_inputs(name)
    probs = head(features, weights, copying).exp().detach()
    for row, step in np.ndindex(2, 3):
        tokens = sources.tokens[row, : sources.lengths[row]].tolist()
        if isinstance(head, PointerHead):
            tokens = [4 + position for position in range(len(tokens) - 1)] + [EOS]
        values = (item[row].detach().numpy() for item in (states, features, weights))
        of_states, of_features, of_weights = values
        expected = expected_probs(
            name,
            head,
            of_states,
            of_features[step],
            of_weights[step],
            copying.gate_inputs[row, step].numpy(),
            tokens,
        )
        for token, value in enumerate(probs[row, step].tolist()):
            assert value == pytest.approx(expected.get(token, 0), abs=1e-12), token


@each_head
def test_copy_share_is_copied_part_of_probability(name):
    head, _, _, features, weights, copying = head_and_inputs(name)
    tokens = torch.tensor([[4, 8, EOS], [4, 5, EOS]] if name == "pointer" else [[4, 9, N + 1]] * 2)
    shares = head.copy_probs(features, weights, copying, tokens)
    log_generate, _ = head.compute_distributions(features, weights, copying)
    probs = head(features, weights, copying).exp().gather(-1, tokens[..., None]).squeeze(-1)
    known = tokens.clamp(max=head.vocab_size - 1)[..., None]
    generated = log_generate.exp().gather(-1, known).squeeze(-1) * (tokens < head.vocab_size)
    torch.testing.assert_close(shares, 1 - generated / probs)
    if name != "pointer":
        assert shares[0, 1] == 0  # it is not in the source
        assert shares[0, 2] == 1  # it is not in the vocabulary


def test_selective_read_weighs_positions_of_last_token_by_copy_probability():
    head, sources, states, features, weights, copying = head_and_inputs("copynet", num_steps=1)
    assert isinstance(head, CopyNetHead)
    copy_probs = head.compute_distributions(features, weights, copying).copy_probs[:, 0]
    tokens = torch.tensor([N + 1, 9])  # at positions 1 and 3, and nowhere
    read = head.selective_read(features, tokens, copying.source)
    rho = copy_probs[0, [1, 3]] / copy_probs[0, [1, 3]].sum()
    torch.testing.assert_close(read[0], rho @ states[0, [1, 3]])
    assert (read[1] == 0).all()
    assert sources.tokens[0, 1] == sources.tokens[0, 3]


@each_system
def test_copying_model_decodes_unknown_words_equally_with_all_strategies(name):
    with unchecked():  # the tests of steps have checked the shapes
        check_decoding(build(name))


def check_decoding(model):
    sources = collate_sources(SOURCES)
    examples = collate_pairs(list(zip(SOURCES, TARGETS, strict=True)))
    log_probs = model(examples).log_probs
    totals = log_probs.exp().sum(-1)
    torch.testing.assert_close(totals, torch.ones_like(totals))
    scored = model.score(sources, TARGETS)
    ensemble = Ensemble([model, model], "probabilities").score(sources, TARGETS)
    for row, (target, hypothesis) in enumerate(zip(TARGETS, scored, strict=True)):
        ids = torch.tensor([*target, EOS])
        of_target = log_probs[row, torch.arange(len(ids)), ids]
        np.testing.assert_allclose(hypothesis.log_probs, of_target.detach().numpy())
        np.testing.assert_allclose(ensemble[row].log_probs, hypothesis.log_probs, atol=1e-12)
    limits = torch.tensor([5, 5])
    options = {"max_lengths": limits, "length_penalty": LengthPenalty()}
    beams = model.search(sources, beam_size=3, **options)
    samples = model.sample(
        sources, 2, max_lengths=limits, options=SamplingOptions(), seed=1, seed_keys=[0, 1]
    )
    for row, source in enumerate(SOURCES):
        alone = collate_sources([source])
        assert alone.tokens[0, -1] == EOS != PAD
        (single,) = model.search(alone, beam_size=3, **{**options, "max_lengths": limits[:1]})
        assert [item.tokens for item in single] == [item.tokens for item in beams[row]]
        for hypothesis in [*beams[row], *samples[row]]:
            if hypothesis.log_prob > -np.inf:
                (rescored,) = model.score(SourceBatch(*alone), [hypothesis.tokens])
                assert rescored.log_prob == pytest.approx(hypothesis.log_prob)
