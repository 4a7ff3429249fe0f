"""Unknown words: copied from where the model looked, or looked up."""

import numpy as np
import pytest
import torch

from heedful.decoding.config import DecodingConfig
from heedful.decoding.translation import read_phrase_table
from heedful.errors import ConfigError, DataError
from heedful.models.base import DecodableModel
from heedful.search import StepOutput
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.vocabulary import EOS, UNK
from tests.unit.decoding.untrained import text_pair, translator


class Fixed(DecodableModel):
    """Says given tokens, and looks where it is told to, whatever it reads."""

    def __init__(self, tokens, weights, size):
        self.tokens = [*tokens, EOS]
        self.weights = torch.tensor(weights)
        self.size = size

    def initial_state(self, sources):
        return torch.zeros(len(sources.lengths), dtype=torch.long)

    def step(self, tokens, state):
        state = state.clamp(max=len(self.tokens) - 1)
        said = torch.full((len(tokens), self.size), -20.0)
        said[torch.arange(len(tokens)), torch.tensor(self.tokens)[state]] = 0.0
        return StepOutput(said, state + 1, self.weights[state])


def copied(weights, *, source="see Quintus, now", dictionary=None):
    """What becomes of "the <unk> is <unk>" by weights of its tokens and the end."""
    text = text_pair("word")
    (the,), (is_,) = text.target.encode("the"), text.target.encode("is")
    settings = DecodingConfig(unk_replacement="copy", phrase_table=dictionary, beam_size=2)
    model = Fixed([the, UNK, is_, UNK], weights, len(text.target))
    (result,) = Translator(model, text, settings).translate([source])
    return result


# Tokens of the source: see, Quintus, the comma, now, and the end.
CURVE_STYLES = np.eye(5, dtype=np.float32)


def test_an_unknown_word_becomes_the_source_word_that_was_looked_at_most():
    result = copied(CURVE_STYLES[[0, 1, 2, 3, 4]])
    assert result.text == "the Quintus is now"
    assert result.tokens == ["the", "<unk>", "is", "<unk>"]
    assert result.word_ids == [0, 1, 2, 3]


def test_a_dictionary_is_asked_first(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("now\tnunc\n\nvale ave\n")
    assert copied(CURVE_STYLES[[0, 1, 2, 3, 4]], dictionary=words).text == "the Quintus is nunc"


def test_what_was_looked_at_by_the_end_of_the_source_or_nowhere_stays_unknown():
    nowhere = np.zeros(5, dtype=np.float32)
    result = copied(
        np.stack([CURVE_STYLES[0], CURVE_STYLES[4], CURVE_STYLES[0], nowhere, CURVE_STYLES[4]])
    )
    assert result.text == "the <unk> is <unk>"


def test_an_unknown_word_at_the_beginning_brings_no_space():
    text = text_pair("word")
    model = Fixed([UNK], CURVE_STYLES[[1, 4]], len(text.target))
    made = Translator(model, text, DecodingConfig(unk_replacement="copy"))
    assert made.translate(["see Quintus, now"])[0].text == "Quintus"


def test_kept_unknown_words_stay():
    text = text_pair("word")
    model = Fixed([UNK], CURVE_STYLES[[1, 4]], len(text.target))
    assert Translator(model, text, DecodingConfig()).translate(["a b, c"])[0].text == "<unk>"


@pytest.mark.parametrize("kind", ["character", "subword"])
def test_copying_is_refused_where_no_word_is_unknown(kind):
    with pytest.raises(ConfigError) as caught:
        translator(kind, unk_replacement="copy")
    assert str(caught.value) == (
        "decoding.unk_replacement: no word of an output can be unknown: its tokens are parts of words\n"
        "  set unknowns to keep; only a target text of `kind: word` has unknown words"
    )


def test_a_dictionary_has_two_words_a_line(tmp_path):
    words = tmp_path / "words.txt"
    words.write_text("a b\nc\td\na b\n")
    assert read_phrase_table(words) == {"a": "b", "c": "d"}


@pytest.mark.parametrize(
    ("lines", "problem", "remedy"),
    [
        (
            "a b\na b c\n",
            "2: two words are wanted, found 3",
            "write a word of the source, a tab or a space, and a word of the target",
        ),
        (
            "a b\n\na c\n",
            "3: 'a' becomes 'c' here, and 'b' in line 1",
            "leave one of the lines out",
        ),
    ],
)
def test_a_line_that_is_no_entry_is_named(tmp_path, lines, problem, remedy):
    words = tmp_path / "words.txt"
    words.write_text(lines)
    with pytest.raises(DataError) as caught:
        translator(unk_replacement="copy", phrase_table=str(words))
    assert str(caught.value) == f"{words}:{problem}\n  {remedy}"


def test_a_dictionary_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        translator(unk_replacement="copy", phrase_table=str(tmp_path / "words.txt"))
