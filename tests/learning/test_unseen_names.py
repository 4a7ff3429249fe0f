"""Copying: names that no training sentence has are translated by copying them."""

from itertools import islice

import pytest

import heedful
from experiments.names import count_right, sentences_with_unseen_names
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

SHORT = ["data.train.num_examples=30000", "data.dev.num_examples=50", "training.max_steps=600"]
SHARED = "{type: shared, hidden_word_rate: 0.5, tokenizer: {type: word, open_vocabulary: true}}"
SETTINGS = {
    "copying": [f"tokenizers={SHARED}", "model.decoder.output_head.type=pointer-generator"],
    "plain": [],
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_names_never_seen_in_training_copied(kind, tmp_path):
    sentences = (item for item in sentences_with_unseen_names() if not item.is_inflected)
    examples, settings = list(islice(sentences, 200)), [*SHORT, *SETTINGS[kind]]
    with unchecked():
        heedful.train("bahdanau-2015-small", tmp_path / "run", settings=settings)
        outputs = heedful.load(tmp_path / "run").translate([item.source for item in examples])
    right, total = count_right(examples, [output.text for output in outputs])
    assert right >= 0.95 * total if kind == "copying" else right == 0
