"""Effects of decoding settings on outputs, each independent of the other texts."""

import re

import numpy as np
import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from heedful.decoding.forbidden_text import contains_phrase
from heedful.decoding.requests import Request
from heedful.errors import ConfigError
from heedful.models.ensembles import Ensemble, ShallowFusion
from heedful.search.penalties import CoveragePenalty
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.vocabulary import EOS
from tests.shape_checking import unchecked
from tests.unit.decoding.untrained import (
    SOURCES,
    TOKENIZER_TYPES,
    build_config,
    build_language_model,
    build_model,
    build_translator,
    train_tokenizers,
)

each_tokenizer = pytest.mark.parametrize("tokenizer_type", TOKENIZER_TYPES)
NONEMPTY = [text for text in SOURCES if text.strip()]
METHODS = {
    "greedy": {"beam_size": 1},
    "beam": {"n_best": 3},
    "diverse": {"beam_size": 4, "diversity": {"num_beam_groups": 2}, "n_best": 4},
    "penalties": {
        "length_penalty": "mean",
        "coverage_penalty": {"type": "repeated"},
        "stopping": "optimal",
    },
    "processors": {
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.5,
        "min_length_ratio": 1.0,
        "forbidden_phrases": ["the"],
    },
    "constraints": {"required_phrases": ["dog", ["cat", "slave"]]},
    "sampling": {"sampling": {"top_k": 4}, "n_best": 2},
    "mbr": {"mbr": {"num_samples": 6}},
    "ensemble": {"ensemble_averaging": "probabilities"},
    "fusion": {"n_best": 2},
}
SEARCH_METHODS = [method for method in METHODS if method not in {"sampling", "mbr"}]


@pytest.fixture(autouse=True)
def without_shape_checks():
    with unchecked():
        yield


def build_method(method, tokenizer_type="word"):
    tokenizers = train_tokenizers(tokenizer_type)
    model = build_model(tokenizers)
    if method == "ensemble":
        averaging = METHODS[method]["ensemble_averaging"]
        model = Ensemble([model, build_model(tokenizers, seed=1)], averaging)
    if method == "fusion":
        language_model = build_language_model(tokenizers)
        model = ShallowFusion(model, language_model, weight=0.5, context_length=8)
    return Translator(model, tokenizers, build_config(**METHODS[method]))


def output_texts(result):
    return [result.text, *(output.text for output in result.alternatives)]


def check_same(result, expected):
    assert output_texts(result) == output_texts(expected)
    assert result.score == pytest.approx(expected.score, abs=1e-3)
    np.testing.assert_allclose(result.log_probs, expected.log_probs, atol=1e-3)
    np.testing.assert_allclose(result.weights, expected.weights, atol=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_batched_texts_match_one_at_a_time_and_other_batches(method):
    translator = build_method(method)
    batched = translator.translate(SOURCES)
    alone = [
        next(translator.predict([text], start_index=index))
        for index, text in enumerate(SOURCES, start=1)
    ]
    translator.decoding = translator.decoding.model_copy(update={"max_batch_tokens": 40})
    # Samples depend on the index of a text, so with sampling the order must stay.
    step = -1 if translator.decoding.sampling_setting is None else 1
    reordered = translator.translate(SOURCES[::step])[::step]
    for result, single, other in zip(batched, alone, reordered, strict=True):
        check_same(result, single)
        check_same(result, other)


@pytest.mark.parametrize("method", METHODS)
def test_shapes_match_tokens_for_every_output(method):
    for result in build_method(method).translate(SOURCES):
        for output in (result, *result.alternatives):
            num_tokens, num_source = len(output.tokens), len(output.source_tokens)
            assert output.weights.shape == (num_tokens, num_source)
            assert output.eos_weights.shape == (num_source,)
            assert output.log_probs.shape == (num_tokens + 1,)
            assert (len(output.word_ids), len(output.source_word_ids)) == (num_tokens, num_source)
            assert output.log_prob == pytest.approx(output.log_probs.sum(), abs=1e-6)
            assert max(output.word_ids, default=-1) < len(output.text.split())


@pytest.mark.parametrize("method", SEARCH_METHODS)
def test_outputs_are_distinct_and_best_first(method):
    for result in build_method(method).translate(NONEMPTY):
        outputs = [result, *result.alternatives]
        scores = [output.score for output in outputs]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(output.tokens) for output in outputs}) == len(outputs)
        assert len(outputs) == METHODS[method].get("n_best", 1)


@each_tokenizer
def test_outputs_contain_required_phrases(tokenizer_type):
    translator = build_translator(tokenizer_type, required_phrases=["dog", ["cat", "slave"]])
    for result in translator.translate(NONEMPTY):
        assert "dog" in result.text
        assert "cat" in result.text or "slave" in result.text


@each_tokenizer
@pytest.mark.parametrize("sampling", [{}, {"sampling": {}}])
def test_outputs_do_not_contain_forbidden_phrases(tokenizer_type, sampling):
    results = build_translator(tokenizer_type, **sampling).translate(NONEMPTY * 3)
    words = {word for result in results for word in re.findall(r"\w+", result.text)}
    phrases = sorted(words)[:4]
    assert phrases
    translator = build_translator(tokenizer_type, forbidden_phrases=phrases, **sampling)
    for result in translator.translate(NONEMPTY * 3):
        assert not any(contains_phrase(result.text, phrase) for phrase in phrases)


@each_tokenizer
@pytest.mark.parametrize("sampling", [{}, {"sampling": {}}, {"mbr": {"num_samples": 3}}])
def test_outputs_start_with_prefix(tokenizer_type, sampling):
    translator = build_translator(tokenizer_type, **sampling)
    requests = [Request("the dog", prefix="a cat"), "the dog", Request("", prefix="slave")]
    prefixed, free, empty = translator.translate(requests)
    assert prefixed.text.startswith("a cat")
    check_same(free, next(translator.predict(["the dog"], start_index=2)))
    assert empty.text.startswith("slave")


@each_tokenizer
@pytest.mark.parametrize("sampling", [{}, {"sampling": {}}])
def test_outputs_have_min_and_max_length(tokenizer_type, sampling):
    translator = build_translator(tokenizer_type, min_length=4, max_length=6, **sampling)
    for result in translator.translate(NONEMPTY):
        assert 4 <= len(result.tokens) <= 6


@pytest.mark.parametrize("size", [1, 2])
def test_no_ngram_is_repeated(size):
    translator = build_translator("character", no_repeat_ngram_size=size, min_length_ratio=0.5)
    for result in translator.translate(NONEMPTY):
        ngrams = list(zip(*(result.tokens[start:] for start in range(size)), strict=False))
        assert len(ngrams) == len(set(ngrams))


def test_repetition_penalty_reduces_repetition():
    def num_repeated(**settings):
        results = build_translator(min_length_ratio=1.5, **settings).translate(NONEMPTY)
        return sum(len(result.tokens) - len(set(result.tokens)) for result in results)

    assert num_repeated(repetition_penalty=5) < num_repeated()


def test_score_is_log_prob_with_length_and_coverage_penalty():
    translator = build_translator(
        length_penalty={"type": "power", "alpha": 0.7}, coverage_penalty={"type": "gnmt"}
    )
    for result in translator.translate(NONEMPTY):
        weights = np.concatenate([result.weights, result.eos_weights[None]])
        score = result.log_prob / len(result.log_probs) ** 0.7 + CoveragePenalty(0.2, "gnmt")(
            weights
        )
        assert result.score == pytest.approx(score, abs=1e-4)


def test_beam_groups_return_more_different_outputs():
    def num_first_words(**settings):
        results = build_translator(beam_size=4, n_best=4, **settings).translate(NONEMPTY)
        return sum(len({text.split(" ")[0] for text in output_texts(result)}) for result in results)

    diversity = {"num_beam_groups": 4, "diversity_penalty": 50}
    assert num_first_words(diversity=diversity) > num_first_words()


def test_samples_depend_on_seed_and_index():
    translator = build_translator(sampling={"seed": 1})
    results = translator.translate(["the dog"] * 4)
    assert len({result.text for result in results}) > 1
    assert next(translator.predict(["the dog"], start_index=3)).text == results[2].text
    others = build_translator(sampling={"seed": 2}).translate(["the dog"] * 4)
    assert [result.text for result in others] != [result.text for result in results]


def test_more_samples_start_with_the_same_ones():
    translator = build_translator(sampling={})
    (single,) = translator.translate(["the dog"])
    (several,) = translator.translate(["the dog"], n_best=3)
    assert single.text == several.text
    assert len(several.alternatives) == 2


def test_sampling_at_temperature_0_is_greedy_search():
    sampled = build_translator(sampling={"temperature": 0}).translate(NONEMPTY)
    greedy = build_translator(beam_size=1).translate(NONEMPTY)
    for result, expected in zip(sampled, greedy, strict=True):
        check_same(result, expected)


@pytest.mark.parametrize("utility", ["bleu", "chrf"])
def test_mbr_with_one_sample_is_sampling(utility):
    selected = build_translator(mbr={"num_samples": 1, "utility": utility}).translate(NONEMPTY)
    sampled = build_translator(sampling={}).translate(NONEMPTY)
    assert [result.text for result in selected] == [result.text for result in sampled]


@pytest.mark.parametrize("utility", ["bleu", "chrf"])
def test_mbr_selects_the_sample_with_highest_expected_utility(utility):
    metric = {"bleu": BLEU(effective_order=True), "chrf": CHRF()}[utility]
    selected = build_translator(mbr={"num_samples": 7, "utility": utility}).translate(NONEMPTY)
    samples = build_translator(sampling={}, n_best=7).translate(NONEMPTY)
    for result, sampled in zip(selected, samples, strict=True):
        texts = output_texts(sampled)
        expected = [
            np.mean([metric.sentence_score(text, [reference]).score for reference in texts])
            for text in texts
        ]
        assert result.score == pytest.approx(max(expected))
        assert result.text == texts[int(np.argmax(expected))]


@pytest.mark.parametrize("averaging", ["log-probabilities", "probabilities"])
def test_ensemble_of_one_equals_the_model(averaging):
    tokenizers, config = train_tokenizers("word"), build_config(n_best=2)
    model = build_model(tokenizers)
    ensemble = Translator(Ensemble([model], averaging), tokenizers, config)
    alone = Translator(model, tokenizers, config).translate(NONEMPTY)
    for result, expected in zip(ensemble.translate(NONEMPTY), alone, strict=True):
        check_same(result, expected)


@each_tokenizer
@pytest.mark.parametrize("method", ["beam", "penalties", "sampling", "ensemble", "fusion"])
def test_scoring_an_output_reproduces_the_translation(tokenizer_type, method):
    translator = build_method(method, tokenizer_type)
    results = translator.translate(SOURCES)
    pairs = [(result.source, result.text) for result in results if round_trips(translator, result)]
    scored = {result.source: result for result in translator.score(pairs)}
    assert scored
    for result in (result for result in results if result.source in scored and result.source):
        forced = scored[result.source]
        np.testing.assert_allclose(forced.log_probs, result.log_probs, atol=1e-4)
        np.testing.assert_allclose(forced.weights, result.weights, atol=1e-4)
        assert forced.score == pytest.approx(result.score, abs=1e-3)
        assert forced.text == result.text


def round_trips(translator, result):
    """Whether the text of an output is tokenized into the tokens of the output."""
    tokenizer = translator.tokenizers.target
    return tokenizer.ids_to_tokens(tokenizer.encode(result.text)) == result.tokens


def test_any_target_can_be_scored():
    translator = build_translator("subword")
    from_empty, to_empty = translator.score([("", "a cat"), ("the dog", "")])
    assert (from_empty.text, to_empty.text) == ("a cat", "")
    assert from_empty.log_prob < 0
    assert to_empty.log_probs.shape == (1,)


def test_requests_with_different_constraints_share_a_batch():
    translator = build_translator()
    requests = [
        "the dog",
        Request("the dog", required_phrases=["slave"]),
        Request("", target="a"),
        Request("the dog", forbidden_phrases=["dog"]),
        "",
    ]
    free, required, target, forbidden, empty = translator.translate(requests)
    check_same(free, translator.translate(["the dog"])[0])
    assert "slave" in required.text
    assert target.text == "a"
    assert not contains_phrase(forbidden.text, "dog")
    assert empty.text == ""


def test_tree_contains_every_output_as_a_path():
    translator = build_translator(n_best=3)
    for result in translator.translate(NONEMPTY, need_tree=True):
        paths = set()
        for node in (node for node in result.tree if node.status == "finished"):
            path, parent = [node.token], node.parent
            while result.tree[parent].token is not None:
                path.append(result.tree[parent].token)
                parent = result.tree[parent].parent
            paths.add(tuple(path[::-1]))
        for output in (result, *result.alternatives):
            assert (*output.tokens, "(end)") in paths
    assert translator.translate(["the dog"])[0].tree is None
    assert translator.translate([""], need_tree=True)[0].tree == []


def test_tree_with_sampling_raises():
    with pytest.raises(ConfigError) as caught:
        build_translator(mbr={}).translate(["a"], need_tree=True)
    assert str(caught.value) == (
        "need_tree: needs beam search, but decoding.mbr is set\n"
        "  remove need_tree, or set decoding.mbr to null"
    )


def test_empty_text_has_an_empty_output_of_the_right_shape():
    translator = build_translator(n_best=2, required_phrases=["dog"], min_length=3)
    (result,) = translator.translate([""])
    assert (result.text, result.tokens, result.word_ids, result.score) == ("", [], [], 0.0)
    assert result.weights.shape == (0, 1)
    assert result.log_probs.shape == result.eos_weights.shape == (1,)
    assert result.source_word_ids == [-1]
    assert result.alternatives == ()


def test_tree_shows_eos_by_the_label():
    translator = build_translator(beam_size=2)
    (result,) = translator.translate(["the dog"], need_tree=True)
    (eos,) = translator.tokenizers.target.ids_to_tokens([EOS])
    assert eos not in {node.token for node in result.tree}
