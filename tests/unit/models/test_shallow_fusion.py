"""Fusion: a language model has its say in every token, and no say with weight 0."""

from itertools import product

import pytest
import torch

from heedful.data.text.batching import collate_sources
from heedful.errors import ConfigError
from heedful.models.base import DecodableModel
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.models.language_model import LanguageModelConfig, RecurrentBackboneConfig
from heedful.search import BeamSearchOptions, LengthPenalty, StepOutput, require_phrase
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import BOS, EOS, UNK
from tests.catalogue import VOCABULARY, build, texts
from tests.shape_checking import unchecked
from tests.unit.search.tables import contains


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take many steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


def language(size=VOCABULARY, scale=3.0):
    torch.manual_seed(3)
    reader = RecurrentBackboneConfig(hidden_size=5)
    model = LanguageModelConfig(backbone=reader, embedding_size=4).build(
        source_vocab_size=size, target_vocab_size=size
    )
    with torch.no_grad():
        for weight in model.parameters():
            weight.mul_(scale)
    return model.double().eval()


class Memoryless(DecodableModel):
    """A model whose next token depends on the last one alone, and is never the begin symbol."""

    def __init__(self, size):
        logits = torch.randn(size, size, generator=torch.Generator().manual_seed(1)).double()
        logits[:, BOS] = -torch.inf
        self.log_probs = logits.log_softmax(dim=-1)

    def initial_state(self, sources):
        return sources.lengths

    def step(self, tokens, state):
        said = self.log_probs[tokens]
        return StepOutput(said, state, said.new_zeros(len(tokens), 1))


@torch.no_grad()
def worth(model, spoken, tokens, weight):
    """An output's worth by the formula: the language model reads it whole, as a line."""
    own = sum(
        model.log_probs[last, token].item()
        for last, token in zip([BOS, *tokens], [*tokens, EOS], strict=True)
    )
    total, state = 0.0, spoken.initial_state(torch.tensor([[EOS]]))
    for last, token in zip([EOS, *tokens], [*tokens, EOS], strict=True):
        step = spoken.step(torch.tensor([last]), state)
        total, state = total + step.log_probs[0, token].item(), step.state
    return own + weight * total


@pytest.mark.parametrize("weight", [0.0, 0.3, 2.0])
def test_wide_beam_finds_the_best_outputs_by_the_formula(weight):
    size, longest = 6, 3
    model, spoken = Memoryless(size), language(size)
    fused = ShallowFusion(model, spoken, weight=weight, context_length=50)
    letters = [token for token in range(size) if token not in (BOS, EOS)]
    outputs = [
        list(output) for length in range(longest + 1) for output in product(letters, repeat=length)
    ]
    expected = sorted(
        ((worth(model, spoken, each, weight), each) for each in outputs), reverse=True
    )
    (actual,) = fused.search(
        collate_sources([[5]]),
        beam_size=130,
        max_lengths=torch.tensor([3]),
        length_penalty=LengthPenalty(),
    )
    assert [each.tokens for each in actual] == [tokens for _, tokens in expected[: len(actual)]]
    assert [e.score for e in actual] == pytest.approx([each for each, _ in expected[: len(actual)]])


@pytest.mark.parametrize("name", ["gru, attend-then-step", "transformer", "convolutional"])
def test_fusion_with_weight_0_equals_the_model(name):
    model, sources = build(name), collate_sources(texts(4))
    fused = ShallowFusion(model, language(), weight=0, context_length=4)
    options = {
        "beam_size": 3,
        "max_lengths": torch.full((4,), 8),
        "length_penalty": LengthPenalty(0.6),
    }
    for ours, others in zip(
        fused.search(sources, **options), model.search(sources, **options), strict=True
    ):
        assert [each.tokens for each in ours] == [each.tokens for each in others]
        assert [each.score for each in ours] == [each.score for each in others]
        for one, other in zip(ours, others, strict=True):
            assert (one.weights == other.weights).all()


@pytest.mark.parametrize("context", [3, 50])
def test_fusion_does_not_depend_on_the_batch(context):
    members = [build("gru, attend-then-step"), build("transformer")]
    fused = ShallowFusion(
        Ensemble(members, "probabilities"), language(), weight=0.4, context_length=context
    )
    sequences = texts(3)
    constraints = [[require_phrase([5, 6])], [], [require_phrase([4])]]

    def found_for(rows):
        sources = collate_sources([sequences[row] for row in rows])
        how = BeamSearchOptions(constraints=[constraints[row] for row in rows])
        limits, penalty = torch.full((len(rows),), 7), LengthPenalty()
        actual = fused.search(
            sources, beam_size=3, max_lengths=limits, length_penalty=penalty, options=how
        )
        drawn = fused.sample(
            sources, 2, max_lengths=limits, options=SamplingOptions(), seed=1, seed_keys=rows
        )
        return [[*row, *others] for row, others in zip(actual, drawn, strict=True)]

    for row, company in enumerate(found_for([0, 1, 2])):
        (alone,) = found_for([row])
        assert [each.tokens for each in alone] == [each.tokens for each in company]
        for each in alone:
            (told,) = fused.score(collate_sources([sequences[row]]), [each.tokens])
            assert told.log_probs == pytest.approx(each.log_probs)
            assert (told.log_probs <= 0).all()
        for must in constraints[row]:
            assert contains(alone[0].tokens, must.phrases[0])


def test_language_model_with_another_vocabulary_raises():
    fused = ShallowFusion(build("transformer"), language(12), weight=0.3, context_length=10)
    with pytest.raises(ConfigError) as caught:
        fused.step(torch.tensor([BOS]), fused.initial_state(collate_sources([[5]])))
    assert str(caught.value) == (
        "shallow_fusion: the language model has 12 tokens, but the model has 11\n"
        "  train it on target texts with the tokenizer of the model"
    )


def test_copied_words_beyond_the_vocabulary_are_unknown_to_the_language_model():
    model, spoken, copied = build("copy, recurrent"), language(), VOCABULARY + 1
    fused = ShallowFusion(model, spoken, weight=0.5, context_length=8, copies_source=True)
    sources = collate_sources([[4, copied, 6]])
    state, own = fused.initial_state(sources), model.initial_state(sources)
    lm_state = spoken.initial_state(torch.tensor([[EOS]]))
    for token, lm_token in ((BOS, EOS), (copied, UNK), (4, 4)):
        step = fused.step(torch.tensor([token]), state)
        alone = model.step(torch.tensor([token]), own)
        said = spoken.step(torch.tensor([lm_token]), lm_state)
        of_copied = said.log_probs[:, [UNK]].expand(-1, 4)  # as many as source tokens
        expected = alone.log_probs + 0.5 * torch.cat([said.log_probs, of_copied], dim=1)
        torch.testing.assert_close(step.log_probs, expected)
        state, own, lm_state = step.state, alone.state, said.state
    (outputs,) = fused.search(
        sources, beam_size=3, max_lengths=torch.tensor([4]), length_penalty=LengthPenalty()
    )
    assert len(outputs) == 3
