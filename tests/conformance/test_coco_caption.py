"""Metrics of captions against the package pycocoevalcap, which `make test-extras` does not install.

Its wheel has 100 MB of Java programs; only three of its modules are used here, which need NumPy.
"""

import random

import numpy as np
import pytest

from heedful.evaluation.base import as_multi_reference
from heedful.evaluation.registry import CAPTION_METRICS

WORDS = ["a", "the", "dog", "man", "runs", "sits", "on", "grass", "red", "two", "'s", "t-shirt"]


def examples():
    """Captions with one to four references, some of them equal to one, some empty."""
    rng = random.Random(3)

    def caption(low=1):
        return " ".join(rng.choices(WORDS, k=rng.randint(low, 12)))

    references = [[caption() for _ in range(rng.randint(1, 4))] for _ in range(120)]
    kinds = (lambda choices: caption(), lambda choices: choices[0], lambda choices: "")
    outputs = [rng.choices(kinds, (6, 3, 1))[0](choices) for choices in references]
    return outputs, references


def scores(scorer):
    """The scores of the package: of the corpus, and of each caption."""
    outputs, references = examples()
    rows = range(len(outputs))
    gold = dict(zip(rows, references, strict=True))
    return scorer.compute_score(gold, {row: [outputs[row]] for row in rows})


def test_cider_d_equals_the_package():
    module = pytest.importorskip("pycocoevalcap.cider.cider")
    outputs, references = examples()
    total, each = scores(module.Cider())
    metric = CAPTION_METRICS["cider-d"]
    rows = metric.sentence_statistics(outputs, as_multi_reference(references))
    assert rows[:, 0] == pytest.approx(each)
    assert metric.compute(rows.sum(axis=0)) == pytest.approx(100 * total)


def test_rouge_l_equals_the_package():
    module = pytest.importorskip("pycocoevalcap.rouge.rouge")
    outputs, references = examples()
    _, each = scores(module.Rouge())
    metric = CAPTION_METRICS["caption-rouge-l"]
    assert metric.sentence_statistics(outputs, references)[:, 0] == pytest.approx(each)


def test_bleu_equals_the_package():
    module = pytest.importorskip("pycocoevalcap.bleu.bleu")
    outputs, references = examples()
    totals, captions = scores(module.Bleu(4))
    for order, (total, each) in enumerate(zip(totals, captions, strict=True), start=1):
        metric = CAPTION_METRICS[f"bleu-{order}"]
        rows = metric.sentence_statistics(outputs, references)
        assert metric.compute(rows.sum(axis=0)) == pytest.approx(100 * total)
        has_words = [bool(output) for output in outputs]
        expected = 100 * np.array(each)[has_words]
        assert metric.compute(rows)[has_words] == pytest.approx(expected, abs=1e-12)
