"""ROUGE against the package rouge-score."""

import random

import pytest

from heedful.evaluation.rouge import ROUGE_1, ROUGE_2, ROUGE_L, Rouge

rouge_scorer = pytest.importorskip("rouge_score.rouge_scorer", reason="needs rouge-score")

TEXT = "The cat's running, dogs RAN quickly; 3 m\u00e4rz-days and a (small) dog was sleeping"
WORDS = TEXT.split()
KINDS = {"rouge1": ROUGE_1, "rouge2": ROUGE_2, "rougeL": ROUGE_L}


def texts(chance, count):
    return [" ".join(chance.choices(WORDS, k=chance.randint(0, 25))) for _ in range(count)]


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("is_stemmed", [False, True], ids=["plain", "stemmed"])
def test_precision_recall_and_mean_are_those_of_the_package(name, is_stemmed):
    scorer = rouge_scorer.RougeScorer([name], use_stemmer=is_stemmed)
    stem = None
    if is_stemmed:
        from nltk.stem.porter import PorterStemmer

        stem = PorterStemmer().stem
    measure = Rouge(name, KINDS[name].overlap, stem=stem)
    chance = random.Random(7)
    for output in texts(chance, 60):
        references = texts(chance, chance.randint(1, 3))
        wanted = scorer.score_multi(references, output)[name]
        found = measure.compare(output, references)
        assert found == pytest.approx((wanted.precision, wanted.recall, wanted.fmeasure))
