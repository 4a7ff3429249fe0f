"""Translations: attention maps, and replacement of unknown words by attention."""

import numpy as np
import pytest
import torch
from typing_extensions import override

from heedful.decoding.config import DecodingConfig
from heedful.decoding.translation import read_phrase_table
from heedful.errors import DataError
from heedful.models.base import DecodableModel
from heedful.search import StepOutput
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.vocabulary import EOS, UNK
from tests.unit.decoding.untrained import build_translator, train_tokenizers


def test_translation_has_an_attention_map():
    (result,) = build_translator(min_length=2).translate(["the dog"])
    assert result.attention_map.source == result.source_tokens
    assert result.attention_map.target == result.tokens
    assert "<iframe" in result._repr_html_()


class ConstantModel(DecodableModel):
    """Generates given tokens with given attention weights for every source."""

    def __init__(self, tokens, weights, vocab_size):
        self.tokens = torch.tensor([*tokens, EOS])
        self.weights = torch.tensor(weights)
        self.vocab_size = vocab_size

    @override
    def initial_state(self, sources):
        return torch.zeros(len(sources.lengths), dtype=torch.long)

    @override
    def step(self, tokens, state):
        state = state.clamp(max=len(self.tokens) - 1)
        log_probs = torch.full((len(tokens), self.vocab_size), -20.0)
        log_probs[torch.arange(len(tokens)), self.tokens[state]] = 0.0
        return StepOutput(log_probs, state + 1, self.weights[state])


# Positions of the source: see, Quintus, the comma, now, EOS.
ONE_HOT = np.eye(5, dtype=np.float32)


def translate_with_weights(weights, *, phrase_table=None):
    """Translate "see Quintus, now" to "the <unk> is <unk>" with these weights, last of EOS."""
    tokenizers = train_tokenizers("word")
    (the,), (is_,) = tokenizers.target.encode("the"), tokenizers.target.encode("is")
    config = DecodingConfig(unk_replacement="copy", phrase_table=phrase_table, beam_size=2)
    model = ConstantModel([the, UNK, is_, UNK], weights, len(tokenizers.target))
    (result,) = Translator(model, tokenizers, config).translate(["see Quintus, now"])
    return result


def test_unknown_word_is_replaced_by_most_attended_source_word():
    result = translate_with_weights(ONE_HOT[[0, 1, 2, 3, 4]])
    assert result.text == "the Quintus is now"
    assert result.tokens == ["the", "<unk>", "is", "<unk>"]
    assert result.word_ids == [0, 1, 2, 3]


def test_phrase_table_takes_precedence_over_copying(tmp_path):
    table = tmp_path / "words.txt"
    table.write_text("now\tnunc\n\nvale ave\n")
    result = translate_with_weights(ONE_HOT[[0, 1, 2, 3, 4]], phrase_table=table)
    assert result.text == "the Quintus is nunc"


def test_unknown_word_remains_if_attention_is_on_eos_or_nowhere():
    nowhere = np.zeros(5, dtype=np.float32)
    weights = np.stack([ONE_HOT[0], ONE_HOT[4], ONE_HOT[0], nowhere, ONE_HOT[4]])
    assert translate_with_weights(weights).text == "the <unk> is <unk>"


@pytest.mark.parametrize(("unk_replacement", "text"), [("copy", "Quintus"), ("keep", "<unk>")])
def test_unknown_word_at_the_start_has_no_space(unk_replacement, text):
    tokenizers = train_tokenizers("word")
    model = ConstantModel([UNK], ONE_HOT[[1, 4]], len(tokenizers.target))
    config = DecodingConfig(unk_replacement=unk_replacement)
    (result,) = Translator(model, tokenizers, config).translate(["see Quintus, now"])
    assert result.text == text


@pytest.mark.parametrize("beam_size", [1, 3])
def test_suppressed_unknown_word_returns_way_to_the_next_best_token(beam_size):
    tokenizers = train_tokenizers("word")
    (the,), (is_,) = tokenizers.target.encode("the"), tokenizers.target.encode("is")
    model = ConstantModel([the, UNK, is_], ONE_HOT[[0, 1, 2, 4]], len(tokenizers.target))
    texts = {}
    for unk_replacement in ("keep", "suppress"):
        config = DecodingConfig(unk_replacement=unk_replacement, beam_size=beam_size)
        (result,) = Translator(model, tokenizers, config).translate(["see Quintus, now"])
        texts[unk_replacement] = result.text.split()
    assert texts["keep"] == ["the", "<unk>", "is"]
    assert "<unk>" not in texts["suppress"]
    assert texts["suppress"][0] == "the"


def test_phrase_table_has_two_words_per_line(tmp_path):
    table = tmp_path / "words.txt"
    table.write_text("a b\nc\td\na b\n")
    assert read_phrase_table(table) == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("lines", "message", "hint"),
    [
        (
            "a b\na b c\n",
            "2: expected 2 words, got 3",
            "write a source word, a tab or a space, and a target word",
        ),
        (
            "a b\n\na c\n",
            "3: 'a' maps to 'c' here, but to 'b' in line 1",
            "remove one of the lines",
        ),
    ],
)
def test_invalid_line_of_a_phrase_table_raises(tmp_path, lines, message, hint):
    table = tmp_path / "words.txt"
    table.write_text(lines)
    with pytest.raises(DataError) as caught:
        build_translator(unk_replacement="copy", phrase_table=str(table))
    assert str(caught.value) == f"{table}:{message}\n  {hint}"


def test_missing_phrase_table_raises(tmp_path):
    with pytest.raises(DataError, match=r"words.txt"):
        build_translator(unk_replacement="copy", phrase_table=str(tmp_path / "words.txt"))
