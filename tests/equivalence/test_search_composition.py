"""Search options together: each keeps its promise in whatever company.

Options are tried in pairs: every value of every option meets every value of every other one, over
systems that look in unlike ways, in a few dozen searches that chance has put together.
"""

from collections.abc import Iterator
from functools import cache
from itertools import combinations, product
from random import Random
from typing import Any

import pytest
import torch

from heedful.data.batching import collate_sources
from heedful.models.backbones import RecurrentBackboneConfig
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.models.language_model import LanguageModelConfig
from heedful.search import (
    FIRST_FINISHED,
    MEAN_LOG_PROB,
    BeamGroups,
    BeamSearchOptions,
    HeuristicStopping,
    LengthPenalty,
    OptimalStopping,
    PatienceStopping,
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
from heedful.search.penalties import (
    GNMTCoveragePenalty,
    RepeatedCoveragePenalty,
    SummaryCoveragePenalty,
)
from heedful.search.sampling import SamplingOptions
from heedful.tokenization.vocabulary import EOS
from tests.catalogue import VOCABULARY, build, texts
from tests.shape_checking import unchecked
from tests.unit.search.tables import contains

pytestmark = pytest.mark.wide
TEXTS = texts(3)
LONGEST = [7, 5, 8]  # tokens of the output of each text
MEMBERS = ["lstm, step-then-attend", "transformer", "convolutional"]
LOOKING = [  # in unlike ways, or nowhere
    "gru, attend-then-step",
    "alignment argmax",
    "alignment local",
    "alignment monotonic",
    "alignment chunkwise",
    "feature coverage",
    "marginal over softmax",
    "sutskever",
    "continuation, gru",
    "decoder only, span both",
    "transformer",
    "convolutional",
    "dilated",
]
TOGETHER = ["ensemble", "fused ensemble"]
RULES: dict[str, list[Any]] = {
    "shortest": [None, "2", "by ratio"],
    "repeats": [None, 1, 2],
    "repetition": [None, 1.5],
    "never": [None, "tokens", "phrases", "of one text"],
    "prefix": [None, [[4, 6], [], [7]]],
}
SEARCHES: dict[str, list[Any]] = {
    "system": [*LOOKING, *TOGETHER],
    "beam": ["greedy", "beam", "diverse"],
    "penalty": [LengthPenalty(), LengthPenalty(0.6), LengthPenalty(0.8, "power"), MEAN_LOG_PROB],
    "coverage": [
        None,
        GNMTCoveragePenalty(0.2),
        RepeatedCoveragePenalty(0.3),
        SummaryCoveragePenalty(0.3),
    ],
    "musts": [None, "one", "one of several", "two"],
    "stopping": [HeuristicStopping(), OptimalStopping(), FIRST_FINISHED, PatienceStopping(2.0)],
    **RULES,
}
DRAWS: dict[str, list[Any]] = {
    "system": ["alignment monotonic", "transformer", "fused ensemble"],
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
    **RULES,
}
BEAMS = {"greedy": (1, BeamGroups()), "beam": (3, BeamGroups()), "diverse": (4, BeamGroups(2, 1.0))}
MUSTS = {
    "one": [[require_phrase([5, 6])], [], [require_phrase([5])]],
    "one of several": [[require_phrase([5, 6], [10])], [require_phrase([10, 5], [6, 4])], []],
    "two": [
        [require_phrase([5]), require_phrase([10, 6])],
        [require_phrase([6]), require_phrase([4, 5])],
        [],
    ],
}
NEVER = {  # nothing of it is in what must be said
    "tokens": ([[8], [1]], lambda rows: ForbiddenTokens([8, 1])),
    "phrases": ([[8], [9, 2], [7, 3]], lambda rows: ForbiddenPhrases([[8], [9, 2], [7, 3]])),
    "of one text": (
        [[9]],
        lambda rows: PerSentenceProcessor([ForbiddenTokens([9]) if r else None for r in rows]),
    ),
}


def pairs(case: dict[str, int]) -> set[tuple[tuple[str, int], tuple[str, int]]]:
    return set(combinations(sorted(case.items()), 2))


def covering(options: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Few cases in which every two values of unlike options meet."""
    sizes, chance = {name: len(values) for name, values in options.items()}, Random(0)
    open_pairs = {
        ((one, i), (other, j))
        for one, other in combinations(sorted(options), 2)
        for i, j in product(range(sizes[one]), range(sizes[other]))
    }
    while open_pairs:
        case = dict(min(open_pairs))
        for name in chance.sample([each for each in options if each not in case], len(options) - 2):
            tries = chance.sample(range(sizes[name]), sizes[name])
            case[name] = max(tries, key=lambda n, k=name: len(pairs({**case, k: n}) & open_pairs))
        open_pairs -= pairs(case)
        yield {name: options[name][number] for name, number in case.items()}


def show(case: dict[str, Any]) -> str:
    sampling_setting = case.get("sampling")
    return f"{case['system']}, {case['beam'] if sampling_setting is None else _changed(sampling_setting)}"


def _changed(how: SamplingOptions) -> str:
    changes = {
        key: value
        for key, value in how._asdict().items()
        if value != SamplingOptions()._asdict()[key]
    }
    return str(changes or "plain")


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take thousands of steps, and `test_steps.py` has checked the shapes of each."""
    with unchecked():
        yield


@cache
def decodable(name):
    if name in LOOKING:
        return build(name)
    members = [build(member) for member in MEMBERS]
    if name == "ensemble":
        return Ensemble(members, "log-probabilities")
    torch.manual_seed(3)
    config = LanguageModelConfig(backbone=RecurrentBackboneConfig(hidden_size=5), embedding_size=4)
    spoken = (
        config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double().eval()
    )
    return ShallowFusion(Ensemble(members, "probabilities"), spoken, weight=0.3, context_length=4)


def shortest(case, rows):
    lengths = torch.tensor([len(TEXTS[row]) for row in rows])
    return {None: 0 * lengths, "2": 0 * lengths + 2, "by ratio": lengths_from_ratio(lengths, 0.5)}[
        case["shortest"]
    ]


def rules_of(case, rows):
    rules = []
    if case["shortest"]:
        rules.append(MinLength(shortest(case, rows), eos=EOS))
    if case["repeats"]:
        rules.append(NoRepeatNGram(case["repeats"]))
    if case["repetition"]:
        rules.append(RepetitionPenalty(case["repetition"]))
    if case["never"]:
        rules.append(NEVER[case["never"]][1](rows))
    if case["prefix"]:
        rules.append(ForcedPrefix([case["prefix"][row] for row in rows]))
    return tuple(rules)


def searched(case, rows):
    width, diversity = BEAMS[case["beam"]]
    how = BeamSearchOptions(
        coverage_penalty=case["coverage"],
        stopping=case["stopping"],
        diversity=diversity,
        processors=rules_of(case, rows),
        constraints=[MUSTS[case["musts"]][row] for row in rows] if case["musts"] else None,
    )
    return decodable(case["system"]).search(
        collate_sources([TEXTS[row] for row in rows]),
        width=width,
        max_lengths=torch.tensor([LONGEST[row] for row in rows]),
        penalty=case["penalty"],
        how=how,
    )


def drawn(case, rows):
    return decodable(case["system"]).sample(
        collate_sources([TEXTS[row] for row in rows]),
        2,
        max_lengths=torch.tensor([LONGEST[row] for row in rows]),
        how=case["sampling"],
        seed=1,
        keys=rows,
        rules=rules_of(case, rows),
    )


def assert_promises_are_kept(case, row, tokens):
    constraints = MUSTS[case["musts"]][row] if case.get("musts") else []
    prefix = case["prefix"][row] if case["prefix"] else []
    assert shortest(case, [row]).item() <= len(tokens) <= LONGEST[row]
    assert EOS not in tokens
    assert tokens[: len(prefix)] == prefix
    for must in constraints:
        assert any(contains(tokens, phrase) for phrase in must.phrases)
    if case["never"] and not (case["never"] == "of one text" and row == 0):
        # What must come first may not be taken back.
        free = tokens[len(prefix) :]
        assert not any(contains(free, phrase) for phrase in NEVER[case["never"]][0])
    if case["repeats"]:
        assert_no_repeats(
            tokens, case["repeats"], {t for m in constraints for p in m.phrases for t in p}
        )


def assert_no_repeats(tokens, size, excused):
    """What must be said goes before what may not be said again."""
    seen = set()
    for last in range(size, len(tokens) + 1):
        run = tuple(tokens[last - size : last])
        assert run not in seen or run[-1] in excused
        seen.add(run)


def assert_evidence_is_that_of_forced_decoding(case, found):
    """All that outputs carry is what is said of them when they are told."""
    model, sources = decodable(case["system"]), collate_sources(TEXTS * 2)
    options = {name: case[name] for name in ("penalty", "coverage") if name in case}
    outputs = [row[rank] for rank in (0, -1) for row in found]
    told = model.score(sources, [each.tokens for each in outputs], **options)
    for one, other in zip(outputs, told, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs)
        assert one.weights == pytest.approx(other.weights, abs=1e-6)
        assert one.eos_weights == pytest.approx(other.eos_weights, abs=1e-6)
        if "sampling" in case or not case["repetition"]:  # else it was ranked by less
            assert one.score == pytest.approx(other.score)


def assert_company_makes_no_difference(alone, company):
    assert [each.tokens for each in alone] == [each.tokens for each in company]
    assert [each.score for each in alone] == pytest.approx([each.score for each in company])


@pytest.mark.parametrize("case", list(covering(SEARCHES)), ids=show)
def test_options_of_search_compose(case):
    found = searched(case, [0, 1, 2])
    for row, outputs in enumerate(found):
        width, _ = BEAMS[case["beam"]]
        scores = [each.score for each in outputs]
        assert scores == sorted(scores, reverse=True)
        assert 1 <= len({tuple(each.tokens) for each in outputs}) == len(outputs) <= width
        for each in outputs:
            assert_promises_are_kept(case, row, each.tokens)
    assert_evidence_is_that_of_forced_decoding(case, found)
    order = [2, 0]
    for row, outputs in zip(order, searched(case, order), strict=True):
        assert_company_makes_no_difference(outputs, found[row])


@pytest.mark.parametrize("case", list(covering(DRAWS)), ids=show)
def test_options_of_sampling_compose(case):
    found = drawn(case, [0, 1, 2])
    for row, outputs in enumerate(found):
        for each in outputs:
            assert_promises_are_kept(case, row, each.tokens)
            assert not {*each.tokens} & {*case["sampling"].without}
    assert_evidence_is_that_of_forced_decoding(case, found)
    order = [2, 0]
    for row, outputs in zip(order, drawn(case, order), strict=True):
        assert_company_makes_no_difference(outputs, found[row])


@pytest.mark.parametrize("options", [SEARCHES, DRAWS], ids=["search", "sampling"])
def test_every_two_values_meet(options):
    cases = [
        {name: options[name].index(value) for name, value in case.items()}
        for case in covering(options)
    ]
    met = set().union(*map(pairs, cases))
    for one, other in combinations(sorted(options), 2):
        for i, j in product(range(len(options[one])), range(len(options[other]))):
            assert ((one, i), (other, j)) in met
    assert len(cases) < 70  # the two longest lists make 60 pairs, and 24
