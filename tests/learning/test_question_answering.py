"""The ordering of systems that docs/lab/question-answering.md names, at a small size."""

import pytest

from experiments.question_answering import FOLDER
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.runs import load
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

LATIN = {"type": "synthetic", "name": "latin"}
SIZES = {"train": 40_000, "dev": 200, "test": 200}


def exact_match(system, folder):
    """Train a system of the lab on Latin for 700 small steps; return its score on unseen pairs."""
    data = {split: {**LATIN, "split": split, "num_examples": SIZES[split]} for split in SIZES}
    training = {"max_steps": 700, "validate_every": 700, "batching": {"max_tokens": 1536}}
    recipe = load_recipe(FOLDER / f"{system}.yaml", {"data": data, "training": training})
    with unchecked():
        train(recipe, folder, device="cpu")
    pairs = recipe.data.test.read()
    outputs = [answer.text for answer in load(folder).predict([pair.source for pair in pairs])]
    references = [pair.target for pair in pairs]
    return compute_score(METRICS["exact-match"], outputs, references).value


def test_attention_answers_more_than_one_vector(tmp_path):
    scores = {
        system: exact_match(system, tmp_path / system)
        for system in ("answer-loss", "bidirectional", "attention")
    }
    assert scores["attention"] >= 40, scores
    assert scores["attention"] >= 2 * max(scores["answer-loss"], scores["bidirectional"]), scores
