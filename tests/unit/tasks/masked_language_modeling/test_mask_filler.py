"""Mask filling: predictions for masked tokens, their evaluation, and errors."""

import pytest

import heedful
from heedful.data.text.token_stream import LMBatchingConfig
from heedful.errors import DataError
from heedful.models.masked_language_model import MaskedLanguageModelConfig, MaskingConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.tasks.masked_language_modeling.task import MaskFiller
from tests.language_modeling import write_text_recipe
from tests.unit.tasks.language_modeling.test_generator import LINES, each_tokenizer

pytestmark = pytest.mark.wide


@pytest.fixture(scope="module")
def mask_filler(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mask_filler")
    recipe = write_text_recipe(folder, "masked-language-model", tokenizer="word", steps=200)
    heedful.train(str(recipe), folder / "run")
    return heedful.load(folder / "run", device="cpu")


def test_masks_filled_with_words_of_the_training_text(mask_filler):
    first, second = mask_filler.fill_mask("abcd [MASK]\nefgh [MASK]", top_k=2)
    assert first[0].token == "efgh"
    assert second[0].token == "ijkl"
    assert first[0].probability > 0.5 > first[1].probability


def test_evaluation_masks_the_same_tokens_every_time(mask_filler):
    lines = ["abcd efgh", "efgh ijkl", "ijkl abcd"] * 10
    loss, _, accuracy = mask_filler.evaluate(lines)
    assert (loss.name, accuracy.name) == ("nats per token", "token accuracy")
    assert accuracy.value > 50
    assert mask_filler.evaluate(lines) == mask_filler.evaluate(lines)
    assert loss.signature == "context:16|chosen:0.15|hidden:0.8|replaced:0.1"


def test_model_with_next_sentence_prediction_trains_and_fills_masks(tmp_path):
    recipe = write_text_recipe(tmp_path, "next-sentence", tokenizer="word", steps=20, every=10)
    heedful.train(str(recipe), tmp_path / "run")
    log = (tmp_path / "run" / "metrics.jsonl").read_text(encoding="utf-8")
    assert "next-sentence" in log
    mask_filler = heedful.load(tmp_path / "run", device="cpu")
    first, second = mask_filler.fill_mask("abcd [MASK]\nefgh [MASK]", top_k=2)
    assert len(first) == len(second) == 2
    lines = ["abcd efgh", "efgh ijkl"]
    assert mask_filler.evaluate(lines) == mask_filler.evaluate(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("abcd efgh", "contains no [MASK]\n  add [MASK] to the text"),
        (
            "abcd [MASK] zebra",
            "some words are not in the vocabulary and cannot be told from [MASK]\n"
            "  use words of the training data",
        ),
    ],
)
def test_invalid_text_raises(mask_filler, text, message):
    with pytest.raises(DataError) as caught:
        mask_filler.fill_mask(text)
    assert str(caught.value) == f"text: {message}"


@each_tokenizer
def test_mask_is_one_token_in_any_context(config):
    tokenizer = config.train(LINES)
    model = MaskedLanguageModelConfig(
        encoder=RecurrentEncoderConfig(embedding_size=4, hidden_size=4), tie_embeddings=False
    ).build(source_vocab_size=len(tokenizer), target_vocab_size=len(tokenizer))
    mask_filler = MaskFiller(model, tokenizer, LMBatchingConfig(), MaskingConfig())
    for text in ("[MASK]", "in [MASK] est", "in horto [MASK].", "[MASK][MASK]", "est\n[MASK]\nin"):
        predictions = mask_filler.fill_mask(text, top_k=3)
        assert [len(candidates) for candidates in predictions] == [3] * text.count("[MASK]")
        for candidates in predictions:
            assert all(0 < candidate.probability < 1 for candidate in candidates)
