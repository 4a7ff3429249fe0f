"""ROUGE against the package rouge-score."""

import random

import pytest
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import BootstrapAggregator

from heedful.evaluation.base import compute_score
from heedful.evaluation.significance import bootstrap_interval
from heedful.evaluation.text_metrics import ROUGE_1, ROUGE_2, ROUGE_L, Rouge

TEXTS_STRATEGY = (
    "The cat's running, dogs RAN quickly; 3 m\u00e4rz-days and a (small) dog was sleeping"
)
WORDS = TEXTS_STRATEGY.split()
KINDS = {"rouge1": ROUGE_1, "rouge2": ROUGE_2, "rougeL": ROUGE_L}


def texts(rng, count):
    return [" ".join(rng.choices(WORDS, k=rng.randint(0, 25))) for _ in range(count)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_stemmed", [False, True], ids=["plain", "stemmed"])
def test_rouge_equals_the_package_per_text(name, is_stemmed):
    scorer = RougeScorer([name], use_stemmer=is_stemmed)
    stem = PorterStemmer().stem if is_stemmed else None
    metric = Rouge(name, KINDS[name].overlap, stem=stem)
    rng = random.Random(7)
    for output in texts(rng, 60):
        references = texts(rng, rng.randint(1, 3))
        expected = scorer.score_multi(references, output)[name]
        result = metric.score_pair(output, references)
        assert result == pytest.approx((expected.precision, expected.recall, expected.fmeasure))


@pytest.mark.parametrize("name", KINDS)
def test_rouge_equals_the_package_per_corpus(name):
    rng = random.Random(8)
    outputs, references = texts(rng, 200), texts(rng, 200)
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
