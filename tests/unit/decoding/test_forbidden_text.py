"""Forbidden text: no output contains the phrase as whole words, however it is tokenized."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.forbidden_text import ForbiddenText, VocabularyIndex, contains_phrase
from heedful.tokenization.tokenizer import WordTokenizerConfig
from tests.unit.decoding.untrained import TOKENIZER_TYPES, train_tokenizers

PHRASES = ["the", "the dog", "a", "in the", "garden", ", and", "caf\u00e9", "\u20ac", "e"]


def phrase_ends(text, phrase):
    """Ends of all occurrences of a phrase as whole words, by a regular expression."""
    before = r"(?<!\w)" if phrase[0].isalnum() else ""
    after = r"(?!\w)" if phrase[-1].isalnum() else ""
    matches = re.finditer(f"(?={before}({re.escape(phrase)}){after})", text)
    return [match.end(1) for match in matches]


def forbidden_tokens(processor, ids, vocab_size):
    generated = torch.tensor([ids], dtype=torch.long).reshape(1, len(ids))
    log_probs = processor.apply(torch.zeros(1, vocab_size), generated, torch.tensor([0]))
    return set((log_probs[0] == -torch.inf).nonzero().flatten().tolist())


@pytest.mark.parametrize("tokenizer_type", TOKENIZER_TYPES)
@given(data=st.data())
def test_token_is_forbidden_iff_it_completes_a_phrase(tokenizer_type, data):
    tokenizer = train_tokenizers(tokenizer_type).target
    index = VocabularyIndex(tokenizer)
    phrases = data.draw(st.lists(st.sampled_from(PHRASES), min_size=1, max_size=2))
    text = data.draw(st.sampled_from(["", "the", "in", "in th", "caf", "a dog,", "the \u20ac"]))
    ids = tokenizer.encode(text)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    before = tokenizer.decode(ids)
    completing = {
        token
        for token in range(len(tokenizer))
        for phrase in phrases
        for text in [tokenizer.decode([*ids, token])]
        if any(end > len(before.rstrip("\ufffd")) for end in phrase_ends(text, phrase))
    }
    assert forbidden_tokens(ForbiddenText(phrases, index), ids, len(tokenizer)) == completing


def test_character_in_several_bytes_is_forbidden_at_the_last_byte():
    tokenizer = train_tokenizers("subword").target
    ids = tokenizer.encode("the \u20ac")
    processor = ForbiddenText(["\u20ac"], VocabularyIndex(tokenizer))
    assert forbidden_tokens(processor, ids[:-1], len(tokenizer)) == {ids[-1]}
    assert not forbidden_tokens(processor, ids[:-2], len(tokenizer))


def test_phrases_normalized_like_texts():
    tokenizer = WordTokenizerConfig(normalization={"lowercase": True}).train(["the dog"])
    processor = ForbiddenText(["THE "], VocabularyIndex(tokenizer))
    assert forbidden_tokens(processor, [], len(tokenizer)) == set(tokenizer.encode("the"))


@pytest.mark.parametrize(
    ("text", "phrase", "expected"),
    [
        ("the dog", "the", True),
        ("bathe", "the", False),
        ("theme", "the", False),
        ("bathe the", "the", True),
        ("(the)", "the", True),
        ("dog, and", ", and", True),
        ("the", "dog", False),
        ("the_", "the", False),
    ],
)
def test_phrase_is_contained_as_whole_words(text, phrase, expected):
    assert contains_phrase(text, phrase) is expected
    assert bool(phrase_ends(text, phrase)) is expected
