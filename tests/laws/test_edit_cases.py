"""Edits of random rows and words of many sentences: what the inspector promises of each."""

import numpy as np
import pytest

from heedful.attention.edits import SOURCE, AttentionEdit
from heedful.decoding.config import DecodingConfig
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.tokenizer import NormalizerConfig, WordTokenizer
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, Vocabulary
from tests.catalogue import VOCABULARY, build
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide

LETTERS = "abcdefghijk"[: VOCABULARY - NUM_SPECIAL_TOKENS]
SYSTEMS = ["gru, attend-then-step", "transformer", "pointer-generator, coverage"]
QUICK, MANY = 5, pytest.mark.slow


def counts(number):
    return pytest.mark.parametrize("count", [QUICK, pytest.param(number, marks=MANY)])


@pytest.fixture(scope="module", params=SYSTEMS)
def translator(request):
    words = [f" {letter}" for letter in LETTERS]
    tokenizer = WordTokenizer(Vocabulary(words), NormalizerConfig().normalize)
    config = DecodingConfig(beam_size=1, min_length=3, max_length=6)
    pair = TokenizerPair(tokenizer, tokenizer)
    return Translator(build(request.param).float(), pair, config)


def explain(translator, text, *edits):
    with unchecked():
        return translator.explain(text, edits=edits, need_effects=False)


def cases(count):
    """Yield a random generator and a sentence of random letters."""
    for seed in range(count):
        random = np.random.default_rng(seed)
        yield random, " ".join(random.choice(list(LETTERS), random.integers(2, 7)))


def edited_layers(explanation):
    return [layer for layer in explanation.layers if layer.kind != "copy"]


@counts(100)
def test_forced_cell_is_forced_and_the_words_before_it_stay(translator, count):
    for random, text in cases(count):
        before = explain(translator, text)
        layer = random.choice([item.path for item in before.layers if item.kind == "cross"])
        (plain,) = (item for item in before.layers if item.path == layer)
        num_heads, num_steps, num_keys = plain.weights.shape
        step, column = int(random.integers(num_steps)), int(random.integers(num_keys))
        head = None if random.integers(2) else int(random.integers(num_heads))
        edit = AttentionEdit(layer=layer, step=step, head=head, set={column: 1.0})
        after = explain(translator, text, edit)
        assert after.result.token_ids[:step] == before.result.token_ids[:step]
        (edited,) = (item for item in after.layers if item.path == layer)
        heads = slice(None) if head is None else slice(head, head + 1)
        if edited.weights.shape[1] > step:  # the output may end there
            np.testing.assert_array_equal(edited.weights[heads, step, column], 1)


@counts(500)
def test_row_set_to_own_weights_changes_no_token(translator, count):
    for random, text in cases(count):
        before = explain(translator, text)
        layer = random.choice([item.path for item in edited_layers(before)])
        (plain,) = (item for item in before.layers if item.path == layer)
        head, step = (int(random.integers(size)) for size in plain.weights.shape[:2])
        row = plain.weights[head, step].tolist()
        after = explain(translator, text, AttentionEdit(layer=layer, step=step, head=head, row=row))
        assert after.result.token_ids == before.result.token_ids
        for one, other in zip(before.layers, after.layers, strict=True):
            np.testing.assert_allclose(one.weights, other.weights, atol=1e-5)


@counts(100)
def test_dropped_word_has_no_weight_in_any_layer_and_rows_sum_to_one(translator, count):
    for random, text in cases(count):
        word = int(random.integers(len(text.split())))
        explanation = explain(translator, text, AttentionEdit(layer=SOURCE, scale={word: 0}))
        for layer in explanation.layers:
            if layer.kind == "decoder-self":
                continue
            assert not layer.weights[..., word].any()
            if layer.kind != "copy":  # whose rows sum to what is copied
                np.testing.assert_allclose(layer.weights.sum(axis=-1), 1, rtol=1e-5)
