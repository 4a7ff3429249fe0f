"""What docs/lab/question-answering.md says of attention, with its systems at a small size."""

import pytest

from experiments.question_answering import FOLDER
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.runs import load
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

LETTERS = {"type": "synthetic", "name": "reverse"}
NUM_EXAMPLES = {"train": 20_000, "dev": 100, "test": 200}
SIZES = {"embedding_size": 64, "hidden_size": 64}
MODELS = {
    "answer-loss": {"embedding_size": 64, "backbone": {"hidden_size": 64}},
    "bidirectional": {"encoder": SIZES, "decoder": SIZES},
    "attention": {"encoder": SIZES, "decoder": SIZES},
}


def exact_match(system, folder):
    """Train a system of the lab to reverse letters for 300 small steps; return its test score."""
    data = {
        split: {**LETTERS, "split": split, "num_examples": n} for split, n in NUM_EXAMPLES.items()
    }
    training = {"max_steps": 300, "validate_every": 300, "batching": {"max_tokens": 1024}}
    training["optimizer"] = {"learning_rate": 1e-2}
    settings = {"data": data, "training": training, "model": MODELS[system]}
    recipe = load_recipe(FOLDER / f"{system}.yaml", settings)
    with unchecked():
        train(recipe, folder, device="cpu")
    pairs = recipe.data.test.read()
    outputs = [answer.text for answer in load(folder).predict([pair.source for pair in pairs])]
    references = [pair.target for pair in pairs]
    return compute_score(METRICS["exact-match"], outputs, references).value


def test_attention_answers_more_than_one_vector(tmp_path):
    scores = {system: exact_match(system, tmp_path / system) for system in MODELS}
    assert scores["attention"] >= 50, scores
    assert max(scores["answer-loss"], scores["bidirectional"]) <= 20, scores
