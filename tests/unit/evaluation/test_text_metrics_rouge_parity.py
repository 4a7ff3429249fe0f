"""ROUGE against the package rouge-score."""

import random

import pytest
from nltk.stem.porter import PorterStemmer
from rouge_score.rouge_scorer import RougeScorer
from rouge_score.scoring import BootstrapAggregator

from heedful.evaluation.base import compute_score
from heedful.evaluation.significance import bootstrap_interval
from heedful.evaluation.text_metrics import ROUGE_1, ROUGE_2, ROUGE_L, Rouge

TOKENIZER_FOLDER = (
    "The cat's running, dogs RAN quickly; 3 m\u00e4rz-days and a (small) dog was sleeping"
)
WORDS = TOKENIZER_FOLDER.split()
KINDS = {"rouge1": ROUGE_1, "rouge2": ROUGE_2, "rougeL": ROUGE_L}


def texts(chance, count):
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, 25))) for _ in range(count)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_stemmed", [False, True], ids=["plain", "stemmed"])
def test_precision_recall_and_mean_are_those_of_the_package(name, is_stemmed):
    scorer = RougeScorer([name], use_stemmer=is_stemmed)
    stem = PorterStemmer().stem if is_stemmed else None
    measure = Rouge(name, KINDS[name].overlap, stem=stem)
    chance = random.Random(7)
    for output in texts(chance, 60):
        references = texts(chance, chance.randint(1, 3))
        wanted = scorer.score_multi(references, output)[name]
        found = measure.score_pair(output, references)
        assert found == pytest.approx((wanted.precision, wanted.recall, wanted.fmeasure))


@pytest.mark.parametrize("name", KINDS)
def test_the_score_of_a_set_and_its_interval_are_those_of_the_package(name):
    chance = random.Random(8)
    outputs, references = texts(chance, 200), texts(chance, 200)
    scorer, added = RougeScorer([name]), BootstrapAggregator(n_samples=1000)
    for output, reference in zip(outputs, references, strict=True):
        added.add_scores(scorer.score(reference, output))
    wanted = [100 * each.fmeasure for each in added.aggregate()[name]]
    found, measure = compute_score(KINDS[name], outputs, references).value, KINDS[name]
    low, high, _ = bootstrap_interval(
        measure.sentence_statistics(outputs, [[each] for each in references]), measure.compute
    )
    # Theirs are drawn, too: 1000 sets tell ends within a tenth of the width.
    assert [low, found, high] == pytest.approx(wanted, abs=0.1 * (high - low))
