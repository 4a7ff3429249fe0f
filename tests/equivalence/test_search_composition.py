"""Combinations of decoding options: every guarantee holds whatever else is set.

All pairs of values are covered by a few dozen random combinations, over different systems.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
import torch

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import collate_sources
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.models.language_model import LanguageModelConfig, RecurrentBackboneConfig
from heedful.search import (
    FIRST_FINISHED,
    MEAN_LOG_PROB,
    BeamGroups,
    BeamPruning,
    BeamSearchOptions,
    LengthPenalty,
    PatienceStopping,
    heuristic_stopping,
    optimal_stopping,
    require_phrase,
)
from heedful.search.logits_processors import (
    ForbiddenPhrases,
    ForbiddenTokens,
    ForcedPrefix,
    MinLength,
    NoRepeatNGram,
    PerSentenceProcessor,
    RepetitionPenalty,
    lengths_from_ratio,
)
from heedful.search.penalties import CoveragePenalty
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import EOS
from tests.catalogue import VOCABULARY, build, texts
from tests.shape_checking import unchecked
from tests.unit.search.tables import contains

pytestmark = pytest.mark.wide
TEXTS = texts(3)
MAX_LENGTHS = [7, 5, 8]  # tokens of the output of each text
MEMBERS = ["lstm, step-then-attend", "transformer", "convolutional"]
SINGLE_MODELS = [  # different kinds of attention, or none
    "gru, attend-then-step",
    "alignment argmax",
    "alignment local",
    "alignment monotonic",
    "alignment monotonic-chunkwise",
    "feature coverage",
    "marginal over softmax",
    "copynet, selective read",
    "sutskever",
    "prefix LM, gru",
    "decoder only, span both",
    "transformer",
    "convolutional",
    "dilated",
]
ENSEMBLES = ["ensemble", "fused ensemble"]
PROCESSOR_OPTIONS: dict[str, list[Any]] = {
    "min_length": [None, "2", "by ratio"],
    "no_repeat_ngram_size": [None, 1, 2],
    "repetition_penalty": [None, 1.5],
    "forbidden": [None, "tokens", "phrases", "of one text"],
    "prefix": [None, [[4, 6], [], [7]]],
}
SEARCH_OPTIONS: dict[str, list[Any]] = {
    "system": [*SINGLE_MODELS, *ENSEMBLES],
    "beam": ["greedy", "beam", "diverse"],
    "length_penalty": [
        LengthPenalty(),
        LengthPenalty(0.6),
        LengthPenalty(0.8, "power"),
        MEAN_LOG_PROB,
    ],
    "coverage_penalty": [
        None,
        CoveragePenalty(0.2, "gnmt"),
        CoveragePenalty(0.3, "repeated"),
        CoveragePenalty(0.3, "summary"),
    ],
    "pruning": [BeamPruning(), BeamPruning(1.0), BeamPruning(3.0, 0.5)],
    "constraints": [None, "one", "one of several", "two"],
    "stopping": [heuristic_stopping, optimal_stopping, FIRST_FINISHED, PatienceStopping(2.0)],
    **PROCESSOR_OPTIONS,
}
SAMPLING_OPTIONS: dict[str, list[Any]] = {
    "system": ["alignment monotonic", "copynet, selective read", "transformer", "fused ensemble"],
    "sampling": [
        SamplingOptions(),
        SamplingOptions(temperature=0),
        SamplingOptions(temperature=2.0),
        SamplingOptions(top_k=3),
        SamplingOptions(top_p=0.7),
        SamplingOptions(min_p=0.2),
        SamplingOptions(typical_p=0.5),
        SamplingOptions(forbidden_tokens=(0,)),
    ],
    **PROCESSOR_OPTIONS,
}
BEAMS = {"greedy": (1, BeamGroups()), "beam": (3, BeamGroups()), "diverse": (4, BeamGroups(2, 1.0))}
CONSTRAINTS = {
    "one": [[require_phrase([5, 6])], [], [require_phrase([5])]],
    "one of several": [[require_phrase([5, 6], [10])], [require_phrase([10, 5], [6, 4])], []],
    "two": [
        [require_phrase([5]), require_phrase([10, 6])],
        [require_phrase([6]), require_phrase([4, 5])],
        [],
    ],
}
FORBIDDEN = {  # no part of it is required by a constraint
    "tokens": ([[8], [1]], lambda rows: ForbiddenTokens([8, 1])),
    "phrases": ([[8], [9, 2], [7, 3]], lambda rows: ForbiddenPhrases([[8], [9, 2], [7, 3]])),
    "of one text": (
        [[9]],
        lambda rows: PerSentenceProcessor([ForbiddenTokens([9]) if row else None for row in rows]),
    ),
}


def pairs(case: dict[str, int]) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(combinations(sorted(case.items()), 2))


def covering_cases(options: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Few cases that contain every pair of values of two options."""
    sizes, random = {name: len(values) for name, values in options.items()}, Random(0)
    uncovered = {
        ((name, i), (other, j))
        for name, other in combinations(sorted(options), 2)
        for i, j in product(range(sizes[name]), range(sizes[other]))
    }
    while uncovered:
        case = dict(min(uncovered))
        others = [name for name in options if name not in case]
        for name in random.sample(others, len(options) - 2):
            values = random.sample(range(sizes[name]), sizes[name])
            case[name] = max(values, key=lambda n, k=name: len(pairs({**case, k: n}) & uncovered))
        uncovered -= pairs(case)
        yield {name: options[name][index] for name, index in case.items()}


def case_id(case: dict[str, Any]) -> str:
    sampling = case.get("sampling")
    return f"{case['system']}, {case['beam'] if sampling is None else changed_options(sampling)}"


def changed_options(options: SamplingOptions) -> str:
    defaults = SamplingOptions()._asdict()
    changes = {key: value for key, value in options._asdict().items() if value != defaults[key]}
    return str(changes or "defaults")


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take thousands of steps, and `test_steps.py` checks the shapes of each."""
    with unchecked():
        yield


@cache
def build_system(name):
    if name in SINGLE_MODELS:
        return accelerate_for_inference(build(name), "cpu")
    members = [accelerate_for_inference(build(member), "cpu") for member in MEMBERS]
    if name == "ensemble":
        return Ensemble(members, "log-probabilities")
    torch.manual_seed(3)
    config = LanguageModelConfig(backbone=RecurrentBackboneConfig(hidden_size=5), embedding_size=4)
    language_model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    return ShallowFusion(
        Ensemble(members, "probabilities"),
        accelerate_for_inference(language_model.double(), "cpu"),
        weight=0.3,
        context_length=4,
    )


def min_lengths(case, rows):
    lengths = torch.tensor([len(TEXTS[row]) for row in rows])
    choices = {
        None: 0 * lengths,
        "2": 0 * lengths + 2,
        "by ratio": lengths_from_ratio(lengths, 0.5),
    }
    return choices[case["min_length"]]


def build_processors(case, rows):
    processors = []
    if case["min_length"]:
        processors.append(MinLength(min_lengths(case, rows), eos=EOS))
    if case["no_repeat_ngram_size"]:
        processors.append(NoRepeatNGram(case["no_repeat_ngram_size"]))
    if case["repetition_penalty"]:
        processors.append(RepetitionPenalty(case["repetition_penalty"]))
    if case["forbidden"]:
        processors.append(FORBIDDEN[case["forbidden"]][1](rows))
    if case["prefix"]:
        processors.append(ForcedPrefix([case["prefix"][row] for row in rows]))
    return tuple(processors)


def run_search(case, rows):
    beam_size, diversity = BEAMS[case["beam"]]
    constraints = CONSTRAINTS.get(case["constraints"])
    options = BeamSearchOptions(
        coverage_penalty=case["coverage_penalty"],
        stopping=case["stopping"],
        diversity=diversity,
        pruning=case["pruning"],
        processors=build_processors(case, rows),
        constraints=[constraints[row] for row in rows] if constraints else None,
    )
    return build_system(case["system"]).search(
        collate_sources([TEXTS[row] for row in rows]),
        beam_size=beam_size,
        max_lengths=torch.tensor([MAX_LENGTHS[row] for row in rows]),
        length_penalty=case["length_penalty"],
        options=options,
    )


def run_sampling(case, rows):
    return build_system(case["system"]).sample(
        collate_sources([TEXTS[row] for row in rows]),
        2,
        max_lengths=torch.tensor([MAX_LENGTHS[row] for row in rows]),
        options=case["sampling"],
        seed=1,
        seed_keys=rows,
        processors=build_processors(case, rows),
    )


def check_guarantees(case, row, tokens):
    constraints = CONSTRAINTS[case["constraints"]][row] if case.get("constraints") else []
    prefix = case["prefix"][row] if case["prefix"] else []
    assert min_lengths(case, [row]).item() <= len(tokens) <= MAX_LENGTHS[row]
    assert EOS not in tokens
    assert tokens[: len(prefix)] == prefix
    for constraint in constraints:
        assert any(contains(tokens, phrase) for phrase in constraint.phrases)
    if case["forbidden"] and not (case["forbidden"] == "of one text" and row == 0):
        # The forced prefix may contain what is forbidden.
        free = tokens[len(prefix) :]
        assert not any(contains(free, phrase) for phrase in FORBIDDEN[case["forbidden"]][0])
    if case["no_repeat_ngram_size"]:
        required = {
            token for constraint in constraints for phrase in constraint.phrases for token in phrase
        }
        check_no_repeated_ngrams(tokens, case["no_repeat_ngram_size"], required)


def check_no_repeated_ngrams(tokens, size, required):
    """Required phrases may repeat n-grams."""
    ngrams = set()
    for end in range(size, len(tokens) + 1):
        ngram = tuple(tokens[end - size : end])
        assert ngram not in ngrams or ngram[-1] in required
        ngrams.add(ngram)


def check_forced_decoding_agrees(case, outputs_of_sentences):
    model, sources = build_system(case["system"]), collate_sources(TEXTS * 2)
    penalties = {
        name: case[name] for name in ("length_penalty", "coverage_penalty") if name in case
    }
    outputs = [outputs[rank] for rank in (0, -1) for outputs in outputs_of_sentences]
    scored = model.score(sources, [output.tokens for output in outputs], **penalties)
    for output, forced in zip(outputs, scored, strict=True):
        assert output.log_probs == pytest.approx(forced.log_probs)
        assert output.weights == pytest.approx(forced.weights, abs=1e-6)
        assert output.eos_weights == pytest.approx(forced.eos_weights, abs=1e-6)
        if "sampling" in case or not case["repetition_penalty"]:  # which changes scores
            assert output.score == pytest.approx(forced.score)


def check_same_outputs(outputs, expected):
    assert [output.tokens for output in outputs] == [output.tokens for output in expected]
    scores = [output.score for output in expected]
    assert [output.score for output in outputs] == pytest.approx(scores)


@pytest.mark.parametrize("case", list(covering_cases(SEARCH_OPTIONS)), ids=case_id)
def test_search_options_compose(case):
    outputs_of_sentences = run_search(case, [0, 1, 2])
    for row, outputs in enumerate(outputs_of_sentences):
        beam_size, _ = BEAMS[case["beam"]]
        scores = [output.score for output in outputs]
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len({tuple(output.tokens) for output in outputs}) == len(outputs) <= beam_size
        for output in outputs:
            check_guarantees(case, row, output.tokens)
    check_forced_decoding_agrees(case, outputs_of_sentences)
    order = [2, 0]
    for row, outputs in zip(order, run_search(case, order), strict=True):
        check_same_outputs(outputs, outputs_of_sentences[row])


@pytest.mark.parametrize("case", list(covering_cases(SAMPLING_OPTIONS)), ids=case_id)
def test_sampling_options_compose(case):
    outputs_of_sentences = run_sampling(case, [0, 1, 2])
    for row, outputs in enumerate(outputs_of_sentences):
        for output in outputs:
            check_guarantees(case, row, output.tokens)
            assert not {*output.tokens} & {*case["sampling"].forbidden_tokens}
    check_forced_decoding_agrees(case, outputs_of_sentences)
    order = [2, 0]
    for row, outputs in zip(order, run_sampling(case, order), strict=True):
        check_same_outputs(outputs, outputs_of_sentences[row])


@pytest.mark.parametrize("options", [SEARCH_OPTIONS, SAMPLING_OPTIONS], ids=["search", "sampling"])
def test_cases_cover_all_pairs_of_values(options):
    cases = [
        {name: options[name].index(value) for name, value in case.items()}
        for case in covering_cases(options)
    ]
    covered = set().union(*map(pairs, cases))
    for name, other in combinations(sorted(options), 2):
        for i, j in product(range(len(options[name])), range(len(options[other]))):
            assert ((name, i), (other, j)) in covered
    assert len(cases) < 70  # the two longest lists make 60 pairs, and 24
