"""Metrics of text by hand, by their definitions, and against rouge-score and sacreBLEU."""

import math
import random
from collections import Counter
from functools import cache

import pytest
import sacrebleu
from hypothesis import given
from hypothesis import strategies as st
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import BootstrapAggregator
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from heedful.evaluation.base import as_multi_reference, compute_score
from heedful.evaluation.registry import METRICS, NBEST_METRICS
from heedful.evaluation.significance import bootstrap_interval
from heedful.evaluation.text_metrics import (
    BLEU,
    CHARACTER_ERROR_RATE,
    CHRF,
    MULTI_BLEU,
    POSITION_INDEPENDENT_ERROR_RATE,
    ROUGE_1,
    ROUGE_2,
    ROUGE_L,
    TER,
    TOKENIZED_BLEU,
    WORD_ERROR_RATE,
    ExactMatch,
    Rouge,
    RougeScore,
    TokenAccuracy,
    ascii_words,
    edit_distance,
    join_outputs,
    lcs_length,
    multiset_overlap,
    ngrams,
    unicode_words,
)

ITEMS = st.lists(st.sampled_from("abc"), max_size=7).map(tuple)


@cache
def distance(one, other):
    if not one or not other:
        return len(one) + len(other)
    return min(
        distance(one[1:], other) + 1,
        distance(one, other[1:]) + 1,
        distance(one[1:], other[1:]) + (one[0] != other[0]),
    )


@cache
def shared(one, other):
    if not one or not other:
        return 0
    if one[0] == other[0]:
        return 1 + shared(one[1:], other[1:])
    return max(shared(one[1:], other), shared(one, other[1:]))


@given(ITEMS, ITEMS)
def test_edit_distance_and_lcs_match_definitions(one, other):
    assert edit_distance(one, other) == distance(one, other)
    assert lcs_length(one, other) == shared(one, other)


@given(ITEMS, ITEMS)
def test_multiset_overlap_same_as_the_definition(one, other):
    left, crossed = list(other), 0
    for item in one:
        if item in left:
            left.remove(item)
            crossed += 1
    assert multiset_overlap(one, other) == crossed


def test_ngrams():
    assert ngrams("abcd", 3) == [("a", "b", "c"), ("b", "c", "d")]
    assert ngrams("ab", 3) == []


def value(metric, outputs, references):
    return compute_score(metric, outputs, references).value


def test_exact_match_with_any_reference():
    assert value(ExactMatch(), ["a", "b", "c"], [["x", "a"], ["b", "y"], ["z", "C"]]) == (
        pytest.approx(200 / 3)
    )


def test_token_accuracy_compares_positions():
    # 2 of 3 places; 0 of 2; 1 of 4, for words too many are places, too.
    outputs, references = ["a b c", "b a", "a b c d"], ["a x c", "a b", "a"]
    assert value(TokenAccuracy(), outputs, references) == pytest.approx(100 * 3 / 9)


def test_token_accuracy_takes_the_best_reference():
    # 1 of 2 is less than 3 of 4, though both have one wrong.
    assert value(TokenAccuracy(), ["a b c d"], [["a x", "a b c x"]]) == 75


def test_token_accuracy_of_empty_texts():
    assert value(TokenAccuracy(), [""], [" "]) == 100
    assert value(TokenAccuracy(), ["a"], [""]) == 0


LETTERS = st.lists(st.sampled_from("abcd"), min_size=1, max_size=6).map(" ".join)


def test_error_rate_is_over_the_corpus():
    # One substitution and one insertion by 3 words; one deletion by 2.
    assert value(WORD_ERROR_RATE, ["a x c d", "b"], ["a b c", "a b"]) == 60
    assert value(WORD_ERROR_RATE, ["x y z"], ["a"]) == 300


def test_position_independent_error_rate_ignores_order():
    assert value(POSITION_INDEPENDENT_ERROR_RATE, ["c b a"], ["a b c"]) == 0
    assert value(POSITION_INDEPENDENT_ERROR_RATE, ["a a b"], ["a b c d"]) == 50  # 4 - 2 in common
    assert value(POSITION_INDEPENDENT_ERROR_RATE, ["a b c d"], ["a b"]) == 100  # two too many


def test_character_error_rate_counts_spaces():
    assert value(CHARACTER_ERROR_RATE, ["the cat"], ["thecats"]) == pytest.approx(200 / 7)


def test_error_rate_takes_the_reference_with_fewest_errors():
    assert value(WORD_ERROR_RATE, ["a b c"], [["x y z", "a b d", "a b"]]) == pytest.approx(100 / 3)


def test_error_rate_of_empty_references():
    assert value(WORD_ERROR_RATE, ["a b"], [""]) == 100
    assert value(WORD_ERROR_RATE, [""], [""]) == 0


@given(LETTERS, LETTERS)
def test_word_order_can_only_add_errors(output, reference):
    free, bound = (
        value(each, [output], [reference])
        for each in (POSITION_INDEPENDENT_ERROR_RATE, WORD_ERROR_RATE)
    )
    assert free <= bound


short_texts = st.text("ab\t ", max_size=2)


def test_exact_match_of_nbest_lists_same_as_hand_calculation():
    outputs = [join_outputs("abcdefghij"), join_outputs("jihgfedcba"), join_outputs(["x"])]
    references = ["c", "c", "x"]
    values = [compute_score(metric, outputs, references).value for metric in NBEST_METRICS.values()]
    assert list(NBEST_METRICS) == ["exact-match@3", "exact-match@5", "exact-match@10"]
    assert [round(value, 2) for value in values] == [66.67, 66.67, 100.0]


@given(
    st.lists(
        st.tuples(st.lists(short_texts, min_size=1, max_size=12), short_texts),
        min_size=1,
        max_size=5,
    )
)
def test_score_increases_with_the_number_of_outputs(rows):
    outputs, references = [join_outputs(row) for row, _ in rows], [text for _, text in rows]
    first = [row[0].replace("\t", " ") for row, _ in rows]
    spaces = [text.replace("\t", " ") for text in references]
    values = [compute_score(METRICS["exact-match"], first, spaces).value]
    values += [
        compute_score(metric, outputs, references).value for metric in NBEST_METRICS.values()
    ]
    assert values == sorted(values)


def test_signature_has_the_number_of_outputs():
    metric = NBEST_METRICS["exact-match@5"]
    assert metric.signature([["a"]]) == "case:mixed|space:kept|outputs:5"


GUNMAN, POLICE = "the gunman killed the police", "police killed the gunman"


def test_rouge_1_and_2_match_hand_calculation():
    # 4 of 5 words, all 4 of the reference; "the gunman", "killed the": 2 of 4 pairs and of 3.
    assert ROUGE_1.score_pair(GUNMAN, [POLICE]) == pytest.approx((4 / 5, 1, 8 / 9))
    assert ROUGE_2.score_pair(GUNMAN, [POLICE]) == pytest.approx((2 / 4, 2 / 3, 4 / 7))


def test_rouge_l_same_as_hand_calculation():
    # "killed the" and "the gunman": 2 of 5 and 2 of 4.
    assert ROUGE_L.score_pair(GUNMAN, [POLICE]) == pytest.approx((2 / 5, 2 / 4, 4 / 9))


def test_rouge_of_a_corpus_is_the_mean_over_texts():
    result = compute_score(ROUGE_1, [GUNMAN, "x"], [POLICE, "y"])
    assert result.value == pytest.approx(100 * (8 / 9 + 0) / 2)
    assert result.signature == "nrefs:1|case:lc|tok:a-z0-9|stem:no|part:f"


def test_rouge_precision_and_recall():
    precision, recall = (Rouge("", ROUGE_1.overlap, part) for part in ("precision", "recall"))
    assert compute_score(precision, [GUNMAN], [POLICE]).value == pytest.approx(80)
    assert compute_score(recall, [GUNMAN], [POLICE]).value == 100


def test_rouge_of_empty_texts_is_zero():
    for metric in (ROUGE_1, ROUGE_2, ROUGE_L):
        assert metric.score_pair("", ["a"]) == metric.score_pair("...", [""]) == RougeScore(0, 0, 0)


def test_rouge_tokenizers():
    text = "Der M\u00e4rz, 2 gr\u00fc\u00dfe"
    assert ascii_words(text) == ["der", "m", "rz", "2", "gr", "e"]
    assert unicode_words(text) == ["der", "m\u00e4rz", "2", "gr\u00fc\u00dfe"]
    kept = Rouge("", ROUGE_1.overlap, tokenize=unicode_words)
    assert kept.signature([["a"]]) == "nrefs:1|case:lc|tok:unicode_words|stem:no|part:f"


ROUGE_TEXT = "The cat's running, dogs RAN quickly; 3 m\u00e4rz-days and a (small) dog was sleeping"
WORDS = ROUGE_TEXT.split()
KINDS = {"rouge1": ROUGE_1, "rouge2": ROUGE_2, "rougeL": ROUGE_L}


def draw_texts(rng, count):
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 25))) for _ in range(count)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_stemmed", [False, True], ids=["plain", "stemmed"])
def test_rouge_equals_the_package_per_text(name, is_stemmed):
    scorer = RougeScorer([name], use_stemmer=is_stemmed)
    stem = PorterStemmer().stem if is_stemmed else None
    metric = Rouge(name, KINDS[name].overlap, stem=stem)
    rng = random.Random(7)
    for output in draw_texts(rng, 60):
        references = draw_texts(rng, rng.randint(1, 3))
        expected = scorer.score_multi(references, output)[name]
        result = metric.score_pair(output, references)
        assert result == pytest.approx((expected.precision, expected.recall, expected.fmeasure))


@pytest.mark.parametrize("name", KINDS)
def test_rouge_equals_the_package_per_corpus(name):
    rng = random.Random(8)
    outputs, references = draw_texts(rng, 200), draw_texts(rng, 200)
    scorer, added = RougeScorer([name]), BootstrapAggregator(n_samples=1000)
    for output, reference in zip(outputs, references, strict=True):
        added.add_scores(scorer.score(reference, output))
    expected = [100 * each.fmeasure for each in added.aggregate()[name]]
    result, metric = compute_score(KINDS[name], outputs, references).value, KINDS[name]
    low, high, _ = bootstrap_interval(
        metric.sentence_statistics(outputs, [[each] for each in references]), metric.compute
    )
    # Theirs are drawn, too: 1000 sets tell ends within a tenth of the width.
    assert [low, result, high] == pytest.approx(expected, abs=0.1 * (high - low))


OUTPUTS = ["The girl sees the slave, here.", "Where is Marcus?", "The dog sleeps in a street."]
FIRST = ["The girl sees the slave here.", "Where is Marcus ?", "The dogs sleep in the street."]
SECOND = ["the girl sees the slave, today.", "Where was Marcus?", "A dog sleeps in the street."]
BOTH = list(zip(FIRST, SECOND, strict=True))
VERSION = f"version:{sacrebleu.__version__}"


@pytest.mark.parametrize(
    ("metric", "compute"),
    [
        (BLEU, sacrebleu.corpus_bleu),
        (CHRF, sacrebleu.corpus_chrf),
        (TER, sacrebleu.corpus_ter),
    ],
)
def test_scores_equal_sacrebleu(metric, compute):
    assert compute_score(metric, OUTPUTS, FIRST).value == compute(OUTPUTS, [FIRST]).score
    assert compute_score(metric, OUTPUTS, BOTH).value == compute(OUTPUTS, [FIRST, SECOND]).score
    some = [FIRST, [SECOND[0], None, SECOND[2]]]
    uneven = [BOTH[0], (FIRST[1],), BOTH[2]]
    assert compute_score(metric, OUTPUTS, uneven).value == compute(OUTPUTS, some).score


def test_signatures_equal_sacrebleu():
    assert BLEU.signature(BOTH) == f"nrefs:2|case:mixed|eff:no|tok:13a|smooth:exp|{VERSION}"
    assert TER.signature(as_multi_reference(FIRST)) == (
        f"nrefs:1|case:lc|tok:tercom|norm:no|punct:yes|asian:no|{VERSION}"
    )
    assert CHRF.signature(as_multi_reference(FIRST)) == (
        f"nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|{VERSION}"
    )
    assert CHRF.signature([["a"], ["a", "b"]]).startswith("nrefs:var|")


@pytest.mark.parametrize("metric", [BLEU, CHRF, TER, TOKENIZED_BLEU, MULTI_BLEU])
def test_signatures_equal_sacrebleu_after_scoring(metric):
    sacrebleu_metric = metric.factory()
    sacrebleu_metric.corpus_score(OUTPUTS, [FIRST, SECOND])
    assert metric.signature(BOTH) == str(sacrebleu_metric.get_signature())


def tokens(line):
    return Tokenizer13a()(line.lower())


def test_tokenized_bleu_equals_sacrebleu_of_lower_cased_tokens():
    given = [list(map(tokens, lines)) for lines in (OUTPUTS, FIRST, SECOND)]
    expected = sacrebleu.corpus_bleu(
        given[0], given[1:], tokenize="none", smooth_method="none", force=True
    )
    assert compute_score(TOKENIZED_BLEU, OUTPUTS, BOTH).value == expected.score > 0
    made = list(zip(*given[1:], strict=True))
    assert compute_score(MULTI_BLEU, given[0], made).value == expected.score
    assert TOKENIZED_BLEU.signature(BOTH) == (
        f"nrefs:2|case:lc|eff:no|tok:13a|smooth:none|{VERSION}"
    )


def counted(words, order):
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def reference_bleu(outputs, references):
    """Papineni et al. 2002, section 2.3, with the reference that is nearest in length."""
    outputs = [line.lower().split() for line in outputs]
    references = [[line.lower().split() for line in lines] for lines in references]
    logs, said, expected = 0.0, 0, 0
    for output, choices in zip(outputs, references, strict=True):
        said += len(output)
        expected += min((abs(len(each) - len(output)), len(each)) for each in choices)[1]
    for order in range(1, 5):
        right = total = 0
        for output, choices in zip(outputs, references, strict=True):
            for gram, times in counted(output, order).items():
                total += times
                right += min(times, max(counted(each, order)[gram] for each in choices))
        if not right:
            return 0.0
        logs += math.log(right / total) / 4
    return 100 * min(1.0, math.exp(1 - expected / said)) * math.exp(logs)


def test_multi_bleu_same_as_the_definition():
    assert compute_score(MULTI_BLEU, OUTPUTS, BOTH).value == pytest.approx(
        reference_bleu(OUTPUTS, BOTH)
    )
    assert (
        compute_score(MULTI_BLEU, OUTPUTS[1:2], BOTH[1:2]).value
        == reference_bleu(OUTPUTS[1:2], BOTH[1:2])
        == 0
    )
    assert compute_score(BLEU, OUTPUTS[1:2], BOTH[1:2]).value > 0  # smoothed
