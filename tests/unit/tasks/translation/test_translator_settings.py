"""Settings of decoding show in outputs, and none of them lets texts know of one another."""

import re

import numpy as np
import pytest

from heedful.decoding.forbidden_text import contains_phrase
from heedful.decoding.requests import Request
from heedful.errors import ConfigError
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.search.penalties import GNMTCoveragePenalty
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.vocabulary import EOS
from tests.shape_checking import unchecked
from tests.unit.decoding.untrained import (
    KINDS,
    SOURCES,
    language_model_for,
    model_for,
    text_pair,
    translator,
)

each_kind = pytest.mark.parametrize("kind", KINDS)
FULL = [text for text in SOURCES if text.strip()]

WAYS = {
    "greedy": {"beam_size": 1},
    "beam": {"n_best": 3},
    "diverse": {"beam_size": 4, "diversity": {"num_beam_groups": 2}, "n_best": 4},
    "penalties": {
        "length_penalty": "mean",
        "coverage_penalty": {"type": "repeated"},
        "stopping": "optimal",
    },
    "rules": {
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.5,
        "min_length_ratio": 1.0,
        "forbidden_phrases": ["the"],
    },
    "constraints": {"required_phrases": ["dog", ["cat", "slave"]]},
    "sampling": {"sampling": {"top_k": 4}, "n_best": 2},
    "consensus": {"mbr": {"num_samples": 6}},
    "ensemble": {"ensemble_averaging": "probabilities"},
    "fusion": {"n_best": 2},
}


@pytest.fixture(autouse=True)
def _quickly():
    with unchecked():
        yield


def by_way(way, kind="word"):
    text = text_pair(kind)
    model = model_for(text)
    if way == "ensemble":
        model = Ensemble([model, model_for(text, seed=1)], WAYS[way]["ensemble"])
    if way == "fusion":
        model = ShallowFusion(model, language_model_for(text), weight=0.5, context_length=8)
    return Translator(model, text, build_config(**WAYS[way]))


def texts_of(result):
    return [result.text, *(each.text for each in result.alternatives)]


def assert_same(one, other):
    assert texts_of(one) == texts_of(other)
    assert one.score == pytest.approx(other.score, abs=1e-3)
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-3)
    np.testing.assert_allclose(one.weights, other.weights, atol=1e-4)


@pytest.mark.parametrize("way", WAYS)
def test_many_at_once_are_one_by_one_and_in_other_batches_in_another_order(way):
    made = by_way(way)
    together = made.translate(SOURCES)
    alone = [next(made.stream([text], first=place)) for place, text in enumerate(SOURCES, start=1)]
    made.decoding = made.decoding.model_copy(update={"max_batch_tokens": 40})
    turn = (
        -1 if made.decoding.sampling_setting is None else 1
    )  # what is drawn follows the number of a text
    elsewhere = made.translate(SOURCES[::turn])[::turn]
    for one, other, third in zip(together, alone, elsewhere, strict=True):
        assert_same(one, other)
        assert_same(one, third)


@pytest.mark.parametrize("way", WAYS)
def test_evidence_has_its_shapes_for_every_text_and_every_output(way):
    for result in by_way(way).translate(SOURCES):
        for each in (result, *result.alternatives):
            count, places = len(each.tokens), len(each.source_tokens)
            assert each.weights.shape == (count, places)
            assert each.eos_weights.shape == (places,)
            assert each.log_probs.shape == (count + 1,)
            assert (len(each.word_ids), len(each.source_word_ids)) == (count, places)
            assert each.log_prob == pytest.approx(each.log_probs.sum(), abs=1e-6)
            assert max(each.word_ids, default=-1) < len(each.text.split())


@pytest.mark.parametrize("way", [way for way in WAYS if way not in {"sampling", "consensus"}])
def test_the_best_come_first_and_none_twice(way):
    for result in by_way(way).translate(FULL):
        found = [result, *result.alternatives]
        assert [each.score for each in found] == sorted((e.score for e in found), reverse=True)
        assert len({tuple(each.tokens) for each in found}) == len(found)
        assert len(found) == WAYS[way].get("n_best", 1)


@each_kind
def test_what_must_be_said_is_said(kind):
    made = translator(kind, required_phrases=["dog", ["cat", "slave"]])
    for result in made.translate(FULL):
        assert "dog" in result.text
        assert "cat" in result.text or "slave" in result.text


@each_kind
@pytest.mark.parametrize("drawn", [{}, {"sampling": {}}])
def test_what_may_not_be_said_is_not_said(kind, drawn):
    said = translator(kind, **drawn).translate(FULL * 3)
    words = sorted({word for each in said for word in re.findall(r"\w+", each.text)})[:4]
    assert words
    for result in translator(kind, forbidden_phrases=words, **drawn).translate(FULL * 3):
        assert not any(contains_phrase(result.text, word) for word in words)


@each_kind
@pytest.mark.parametrize("drawn", [{}, {"sampling": {}}, {"mbr": {"num_samples": 3}}])
def test_outputs_begin_with_their_prefix(kind, drawn):
    made = translator(kind, **drawn)
    asked = [Request("the dog", prefix="a cat"), "the dog", Request("", prefix="slave")]
    first, free, empty = made.translate(asked)
    assert first.text.startswith("a cat")
    assert_same(free, next(made.stream(["the dog"], first=2)))
    assert empty.text.startswith("slave")


@each_kind
@pytest.mark.parametrize("drawn", [{}, {"sampling": {}}])
def test_lengths_are_kept_to(kind, drawn):
    for result in translator(kind, min_length=4, max_length=6, **drawn).translate(FULL):
        assert 4 <= len(result.tokens) <= 6


@pytest.mark.parametrize("size", [1, 2])
def test_no_run_of_tokens_comes_again(size):
    for result in translator(
        "character", no_repeat_ngram_size=size, min_length_ratio=0.5
    ).translate(FULL):
        runs = list(zip(*(result.tokens[place:] for place in range(size)), strict=False))
        assert len(runs) == len(set(runs))


def test_a_repetition_penalty_makes_outputs_repeat_less():
    def repeated(**given):
        found = translator(min_length_ratio=1.5, **given).translate(FULL)
        return sum(len(each.tokens) - len(set(each.tokens)) for each in found)

    assert repeated(repetition_penalty=5) < repeated()


def test_the_length_penalty_and_coverage_make_the_score():
    given = {
        "length_penalty": {"type": "power", "alpha": 0.7},
        "coverage_penalty": {"type": "gnmt"},
    }
    for result in translator(**given).translate(FULL):
        looked = np.concatenate([result.weights, result.eos_weights[None]])
        expected = result.log_prob / len(result.log_probs) ** 0.7 + GNMTCoveragePenalty(0.2)(looked)
        assert result.score == pytest.approx(expected, abs=1e-4)


def test_groups_find_outputs_that_differ_more():
    def words(**given):
        found = translator(beam_size=4, n_best=4, **given).translate(FULL)
        return sum(len({text.split(" ")[0] for text in texts_of(each)}) for each in found)

    assert words(diversity={"num_beam_groups": 4, "diversity_penalty": 50}) > words()


def test_outputs_that_are_drawn_follow_seed_and_number():
    made = translator(sampling={"seed": 1})
    same = made.translate(["the dog"] * 4)
    assert len({each.text for each in same}) > 1
    assert next(made.stream(["the dog"], first=3)).text == same[2].text
    other = translator(sampling={"seed": 2}).translate(["the dog"] * 4)
    assert [each.text for each in other] != [each.text for each in same]


def test_more_outputs_are_drawn_after_the_first():
    made = translator(sampling={})
    (one,), (three,) = made.translate(["the dog"]), made.translate(["the dog"], n_best=3)
    assert one.text == three.text
    assert len(three.alternatives) == 2


def test_sampling_without_heat_is_greedy():
    cold, greedy = translator(sampling={"temperature": 0}), translator(beam_size=1)
    for one, other in zip(cold.translate(FULL), greedy.translate(FULL), strict=True):
        assert_same(one, other)


@pytest.mark.parametrize("gain", ["bleu", "chrf"])
def test_a_consensus_of_one_is_what_is_drawn(gain):
    agreed = translator(mbr={"num_samples": 1, "utility": gain}).translate(FULL)
    drawn = translator(sampling={}).translate(FULL)
    assert [each.text for each in agreed] == [each.text for each in drawn]


@pytest.mark.parametrize("gain", ["bleu", "chrf"])
def test_a_consensus_gains_most_from_all_that_was_drawn(gain):
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    measure = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}[gain]
    agreed = translator(mbr={"num_samples": 7, "utility": gain}).translate(FULL)
    drawn = translator(sampling={}, n_best=7).translate(FULL)
    for one, several in zip(agreed, drawn, strict=True):
        texts = texts_of(several)
        gains = [
            np.mean([measure.sentence_score(text, [truth]).score for truth in texts])
            for text in texts
        ]
        assert one.score == pytest.approx(max(gains))
        assert one.text == texts[int(np.argmax(gains))]


def test_an_ensemble_of_one_is_the_model():
    text = text_pair("word")
    model = model_for(text)
    for average in ("log-probabilities", "probabilities"):
        joined = Translator(Ensemble([model], average), text, build_config(n_best=2))
        alone = Translator(model, text, build_config(n_best=2))
        for one, other in zip(joined.translate(FULL), alone.translate(FULL), strict=True):
            assert_same(one, other)


@each_kind
@pytest.mark.parametrize("way", ["beam", "penalties", "sampling", "ensemble", "fusion"])
def test_what_is_found_is_scored_the_same_when_it_is_given(kind, way):
    made = by_way(way, kind)
    found = made.translate(SOURCES)
    pairs = [
        (each.source, each.text)
        for each in found
        if made.text.target.encode(each.text) == _ids(made, each)
    ]
    again = {each.source: each for each in made.score(pairs)}
    assert again
    for each in (each for each in found if each.source in again and each.source):
        np.testing.assert_allclose(again[each.source].log_probs, each.log_probs, atol=1e-4)
        np.testing.assert_allclose(again[each.source].weights, each.weights, atol=1e-4)
        assert again[each.source].score == pytest.approx(each.score, abs=1e-3)
        assert again[each.source].text == each.text


def _ids(made, result):
    """The tokens of a result, if its text is cut into them again."""
    ids = made.text.target.encode(result.text)
    return ids if made.text.target.ids_to_tokens(ids) == result.tokens else None


def test_given_texts_are_scored_whatever_they_are():
    made = translator("subword")
    empty, unlike = made.score([("", "a cat"), ("the dog", "")])
    assert (empty.text, unlike.text) == ("a cat", "")
    assert empty.log_prob < 0
    assert unlike.log_probs.shape == (1,)


def test_requests_of_every_kind_go_together():
    made = translator()
    wishes = [
        "the dog",
        Request("the dog", required_phrases=["slave"]),
        Request("", target="a"),
        Request("the dog", forbidden_phrases=["dog"]),
        "",
    ]
    free, bound, given, barred, nothing = made.translate(wishes)
    assert_same(free, made.translate(["the dog"])[0])
    assert "slave" in bound.text
    assert given.text == "a"
    assert not contains_phrase(barred.text, "dog")
    assert nothing.text == ""


def test_a_tree_holds_every_output_as_a_path():
    made = translator(n_best=3)
    for result in made.translate(FULL, need_tree=True):
        paths = set()
        for node in (node for node in result.tree if node.status == "ended"):
            path, above = [node.token], node.parent
            while result.tree[above].token is not None:
                path.append(result.tree[above].token)
                above = result.tree[above].parent
            paths.add(tuple(path[::-1]))
        for each in (result, *result.alternatives):
            assert (*each.tokens, "(end)") in paths
    assert made.translate(["the dog"])[0].tree is None
    assert made.translate([""], need_tree=True)[0].tree == []


def test_a_tree_is_refused_where_outputs_are_drawn():
    with pytest.raises(ConfigError) as caught:
        translator(mbr={}).translate(["a"], need_tree=True)
    assert str(caught.value) == (
        "want_tree: only a beam has a tree, and outputs are drawn (decoding.mbr is set)\n"
        "  ask for no tree, or set decoding.mbr to null"
    )


def test_an_empty_text_gives_nothing_but_the_right_shapes():
    (result,) = translator(n_best=2, required_phrases=["dog"], min_length=3).translate([""])
    assert (result.text, result.tokens, result.word_ids, result.score) == ("", [], [], 0.0)
    assert result.weights.shape == (0, 1)
    assert result.log_probs.shape == result.eos_weights.shape == (1,)
    assert result.source_word_ids == [-1]
    assert result.alternatives == ()


def test_the_end_is_shown_by_its_label_alone():
    made = translator(beam_size=2)
    (result,) = made.translate(["the dog"], need_tree=True)
    (shown,) = made.text.target.ids_to_tokens([EOS])
    assert shown not in {node.token for node in result.tree}
