"""BLEU, chrF and TER against sacreBLEU, and the BLEU of old papers against its definition."""

import math
from collections import Counter

import pytest
import sacrebleu
from sacrebleu.tokenizers.tokenizer_13a import Tokenizer13a

from heedful.evaluation.base import as_multi_reference, compute_score
from heedful.evaluation.text_metrics import BLEU, CHRF, MULTI_BLEU, TER, TOKENIZED_BLEU

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


def test_multi_bleu_same_as_its_definition():
    assert compute_score(MULTI_BLEU, OUTPUTS, BOTH).value == pytest.approx(
        reference_bleu(OUTPUTS, BOTH)
    )
    assert (
        compute_score(MULTI_BLEU, OUTPUTS[1:2], BOTH[1:2]).value
        == reference_bleu(OUTPUTS[1:2], BOTH[1:2])
        == 0
    )
    assert compute_score(BLEU, OUTPUTS[1:2], BOTH[1:2]).value > 0  # smoothed
