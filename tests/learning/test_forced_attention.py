"""A model that reverses letters says the letter that it is forced to look at."""

from random import Random

import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.data.sources import SyntheticPairsConfig

pytestmark = pytest.mark.learning

DROPOUT = {"model.encoder.dropout": 0.2, "model.decoder.dropout": 0.2}
ATTEND_THEN_STEP = {
    "model.decoder.wiring": {"type": "attend-then-step"},
    "model.decoder.attention": {"score": {"type": "additive"}},
}


def forced_letter(model, text, random):
    """Return a letter of the text, and what a step says if it looks at nothing else."""
    letters = text.split()
    step, position = random.randrange(len(letters)), random.randrange(len(letters))
    edit = AttentionEdit(layer="decoder.wiring.attention", step=step, set={position: 1.0})
    tokens = model.explain(text, edits=[edit], need_effects=False).result.tokens
    return letters[position], "".join(tokens[step : step + 1]).strip()


@pytest.mark.parametrize("settings", [DROPOUT, ATTEND_THEN_STEP], ids=["luong", "bahdanau"])
def test_output_is_the_forced_letter_in_95_of_100_cases(settings, tmp_path):
    steps = {"training.max_steps": 900, "training.validate_every": 900}
    heedful.train("reverse-tiny", tmp_path, settings={**steps, **settings}, device="cpu")
    model, random = heedful.load(tmp_path), Random(0)
    pairs = SyntheticPairsConfig(name="reverse", split="test", num_examples=200).read()
    cases = [forced_letter(model, pair.source, random) for pair in pairs]
    assert sum(said == forced for forced, said in cases) >= 0.95 * len(cases), cases
