"""Guided alignment lowers the alignment error rate of attention."""

import random

import pytest

import heedful
from heedful.aligners.links import format_pharaoh
from heedful.decoding.word_alignment import argmax_links, word_alignment
from heedful.evaluation.annotation_metrics import AlignmentErrorRate
from heedful.evaluation.base import compute_score
from tests.commands import write_recipe

pytestmark = pytest.mark.learning

SIDE = (
    "{type: transformer, hidden_size: 32, num_layers: 2, dropout: 0, feed_forward: [{}], "
    "attention: {score: {type: scaled-dot}, multi_head: {num_heads: 2}}"
)
TRANSFORMER = [
    f"model.encoder={SIDE}}}",
    f"model.decoder={SIDE}, alignment_layer: 1, alignment_heads: 1}}",
]
HEAD = "training.guided_alignment={weight: 0.5, aligner: {type: ibm1}}"


def write_dictionary(folder, size=600):
    """Sentences of a dictionary in reversed order; give the links of each."""
    rng = random.Random(0)
    rows = [rng.sample("abcdefghijkl", rng.randint(3, 7)) for _ in range(size)]
    (folder / "source.txt").write_text("".join(" ".join(row) + "\n" for row in rows))
    targets = [" ".join(word.upper() for word in reversed(row)) for row in rows]
    (folder / "target.txt").write_text("".join(f"{line}\n" for line in targets))
    pairs = [(" ".join(row), target) for row, target in zip(rows, targets, strict=True)]
    gold = [" ".join(f"{len(row) - 1 - i}-{i}" for i, _ in enumerate(row)) for row in rows]
    return pairs, gold


@pytest.mark.parametrize(
    ("settings", "steps"), [([], 60), (TRANSFORMER, 150)], ids=["recurrent", "one head"]
)
def test_guided_attention_aligns_words_before_unguided_attention_does(settings, steps, tmp_path):
    recipe = write_recipe(tmp_path, steps=steps, every=steps)
    pairs, gold = write_dictionary(tmp_path)
    error_rates = []
    for name, guide in (("plain", []), ("guided", [HEAD])):
        heedful.train(str(recipe), tmp_path / name, settings=[*settings, *guide])
        scored = heedful.load(tmp_path / name).score(pairs[:100])
        links = [format_pharaoh(word_alignment(result, argmax_links)) for result in scored]
        error_rates.append(compute_score(AlignmentErrorRate(), links, gold[:100]).value)
    plain, guided = error_rates
    assert guided < 10 < plain
