"""Copying: names that no training sentence has are translated by copying them."""

import pytest

import heedful
from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.latin.corpus import reserved_names
from tests.shape_checking import unchecked

pytestmark = pytest.mark.learning

SHARED = "{type: shared, hidden_word_rate: 0.5, tokenizer: {type: word, open_vocabulary: true}}"
SETTINGS = {
    "copying": [f"tokenizers={SHARED}", "model.decoder.output_head.type=pointer-generator"],
    "plain": [],
}


def unseen_names(count):
    """Sources with the names of their targets, all of which stand in the source as they are."""
    names, examples = set(reserved_names()), []
    for source, target in get_corpus("latin").pairs("names"):
        words = set(source.strip(".?!").replace(",", "").split())
        expected = {name for name in names if name in target}
        if expected <= words:
            examples.append((source, expected))
        if len(examples) == count:
            return examples
    raise AssertionError("the split has fewer sentences")


@pytest.mark.parametrize("kind", SETTINGS)
def test_names_never_seen_in_training_are_copied(kind, tmp_path):
    examples = unseen_names(200)
    with unchecked():
        heedful.train("bahdanau-2015-small", tmp_path / "run", settings=SETTINGS[kind])
        outputs = heedful.load(tmp_path / "run").translate([source for source, _ in examples])
    results = [
        name in output.text
        for (_, expected), output in zip(examples, outputs, strict=True)
        for name in expected
    ]
    share = sum(results) / len(results)
    assert share >= 0.95 if kind == "copying" else share == 0
