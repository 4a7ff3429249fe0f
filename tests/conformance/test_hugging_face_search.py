"""Hugging Face's logits processors, sampling filters and `generate`, on random models."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import MarianConfig, MarianMTModel
from transformers.generation import logits_process as theirs

from heedful.search import (
    FIRST_FINISHED,
    BeamSearchOptions,
    StepOutput,
    beam_search,
    optimal_stopping,
)
from heedful.search.logits_processors import (
    ForbiddenPhrases,
    ForbiddenTokens,
    ForcedPrefix,
    MinLength,
    NoRepeatNGram,
    RepetitionPenalty,
)
from heedful.search.sampling import SamplingOptions
from tests.conformance.hugging_face import SIZES, example_batch, randomize

VOCABULARY, EOS, NUM_ROWS = 7, 1, 5
BOS, MARIAN_EOS, MAX_LENGTH = SIZES["decoder_start_token_id"], SIZES["eos_token_id"], 15
PREFIX = [2, 4, 4]
PROCESSORS = {
    "min length": (
        MinLength(torch.tensor([3]), eos=EOS),
        theirs.MinLengthLogitsProcessor(3, EOS),
    ),
    "no repeated bigram": (NoRepeatNGram(2), theirs.NoRepeatNGramLogitsProcessor(2)),
    "no repeated token": (NoRepeatNGram(1), theirs.NoRepeatNGramLogitsProcessor(1)),
    "forbidden tokens": (
        ForbiddenTokens([2, 5]),
        theirs.SuppressTokensLogitsProcessor([2, 5]),
    ),
    "forbidden phrases": (
        ForbiddenPhrases([[2, 3], [4], [3, 3, 2]]),
        theirs.NoBadWordsLogitsProcessor([[2, 3], [4], [3, 3, 2]], EOS),
    ),
    "forced prefix": (
        ForcedPrefix([PREFIX]),
        theirs.PrefixConstrainedLogitsProcessor(
            lambda _, tokens: PREFIX[len(tokens) : len(tokens) + 1] or list(range(VOCABULARY)), 1
        ),
    ),
    "repetition penalty": (RepetitionPenalty(1.3), theirs.RepetitionPenaltyLogitsProcessor(1.3)),
}
random_steps = given(seed=st.integers(0, 9999), depth=st.integers(1, 6))


@pytest.mark.parametrize("name", PROCESSORS)
@random_steps
def test_processor_same_as_hugging_face(name, seed, depth):
    """Log-probabilities are negative, and there the repetition penalty multiplies in both."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(NUM_ROWS, VOCABULARY, generator=generator).log_softmax(-1)
    generated = torch.randint(2, 5, (NUM_ROWS, depth), generator=generator)
    ours, reference = PROCESSORS[name]
    actual = ours.apply(log_probs, generated, torch.zeros(NUM_ROWS).long())
    torch.testing.assert_close(actual, reference(generated, log_probs.clone()))


FILTERS = {
    "temperature": (SamplingOptions(temperature=0.6), [theirs.TemperatureLogitsWarper(0.6)]),
    "top-k": (SamplingOptions(top_k=3), [theirs.TopKLogitsWarper(3)]),
    "top-p": (SamplingOptions(top_p=0.7), [theirs.TopPLogitsWarper(0.7)]),
    "min-p": (SamplingOptions(min_p=0.2), [theirs.MinPLogitsWarper(0.2)]),
    "typical": (SamplingOptions(typical_p=0.6), [theirs.TypicalLogitsWarper(0.6)]),
    "all": (
        SamplingOptions(temperature=1.4, top_k=5, top_p=0.8),
        [
            theirs.TemperatureLogitsWarper(1.4),
            theirs.TopKLogitsWarper(5),
            theirs.TopPLogitsWarper(0.8),
        ],
    ),
}


@pytest.mark.parametrize("name", FILTERS)
@given(seed=st.integers(0, 9999))
def test_sampling_filter_same_as_hugging_face(name, seed):
    """The inverse CDF at many points gives the probabilities of what may be sampled."""
    generator = torch.Generator().manual_seed(seed)
    log_probs = torch.randn(VOCABULARY, generator=generator).double().log_softmax(-1)
    options, warpers = FILTERS[name]
    scores = log_probs[None]
    for warper in warpers:
        scores = warper(None, scores)
    num_points = 500
    points = [(index + 0.5) / num_points for index in range(num_points)]
    tokens = options.sample_tokens(log_probs.expand(num_points, -1), points)
    actual = tokens.bincount(minlength=VOCABULARY) / num_points
    torch.testing.assert_close(actual, scores.softmax(-1)[0].float(), atol=2 / num_points, rtol=0)


class StepwiseMarian:
    """A random Marian as the model of a search; its state is the source and all tokens so far."""

    def __init__(self, seed):
        torch.manual_seed(seed)
        self.marian = randomize(MarianMTModel(MarianConfig(**SIZES)))
        with torch.no_grad():
            self.marian.final_logits_bias[0, MARIAN_EOS] += 2

    def initial_state(self, tokens):
        mask = (tokens != 0).long()
        encoded = self.marian.get_encoder()(input_ids=tokens, attention_mask=mask)
        return encoded.last_hidden_state, mask, tokens[:, :0]

    def step(self, tokens, state):
        encoded, mask, history = state
        history = torch.cat([history, tokens[:, None]], dim=1)
        logits = self.marian(
            encoder_outputs=(encoded,),
            attention_mask=mask,
            decoder_input_ids=history,
            use_cache=False,
        ).logits[:, -1]
        weights = encoded.new_zeros(len(tokens), encoded.size(1))
        return StepOutput(logits.log_softmax(-1), (encoded, mask, history), weights)


@pytest.mark.parametrize("seed", [0, 1])  # whose outputs end before the limit
@pytest.mark.parametrize(
    ("beam_size", "min_length", "ngram_size"), [(1, 0, 0), (3, 0, 0), (4, 0, 0), (3, 4, 2)]
)
@torch.no_grad()
def test_beam_search_same_as_generate(seed, beam_size, min_length, ngram_size):
    model, tokens = StepwiseMarian(seed), example_batch().sources.tokens
    generated = model.marian.generate(
        input_ids=tokens,
        attention_mask=(tokens != 0).long(),
        num_beams=beam_size,
        num_return_sequences=beam_size,
        min_new_tokens=min_length,
        max_new_tokens=MAX_LENGTH,
        no_repeat_ngram_size=ngram_size,
        suppress_tokens=[BOS] if ngram_size else None,  # which it counts among the n-grams
        length_penalty=0.0,
        early_stopping="never" if beam_size > 1 else False,
        do_sample=False,
    )
    processors = [MinLength(torch.full((len(tokens),), min_length), eos=MARIAN_EOS)]
    if ngram_size:
        processors += [ForbiddenTokens([BOS]), NoRepeatNGram(ngram_size)]
    outputs = beam_search(
        model,
        model.initial_state(tokens),
        bos=BOS,
        eos=MARIAN_EOS,
        beam_size=beam_size,
        max_lengths=torch.full((len(tokens),), MAX_LENGTH),
        options=BeamSearchOptions(
            stopping=FIRST_FINISHED if beam_size == 1 else optimal_stopping,
            processors=tuple(processors),
        ),
    )
    rows = iter(generated[:, 1:].tolist())
    for of_sentence in outputs:
        expected = [next(rows) for _ in range(beam_size)]
        ended = [row[: row.index(MARIAN_EOS)] for row in expected]
        assert [output.tokens for output in of_sentence] == ended
