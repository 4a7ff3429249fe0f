"""Forbidding: no output holds the phrase as whole words, however it is cut."""

import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.forbidden_text import ForbiddenText, VocabularyIndex, contains_phrase
from tests.unit.decoding.untrained import KINDS, text_pair

PHRASES = ["the", "the dog", "a", "in the", "garden", ", and", "caf\u00e9", "\u20ac", "e"]


def places(text, phrase):
    """Where a phrase ends that stands in a text as whole words, by a regular expression."""
    before = r"(?<!\w)" if phrase[0].isalnum() else ""
    after = r"(?!\w)" if phrase[-1].isalnum() else ""
    found = re.finditer(f"(?={before}({re.escape(phrase)}){after})", text)
    return [match.end(1) for match in found]


def forbidden(rule, ids, size):
    written = torch.tensor([ids], dtype=torch.long).reshape(1, len(ids))
    left = rule.apply(torch.zeros(1, size), written, torch.tensor([0]))
    return set((left[0] == -torch.inf).nonzero().flatten().tolist())


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_a_token_is_forbidden_if_and_only_if_it_completes_a_phrase(kind, data):
    tokenizer = text_pair(kind).target
    spelled = VocabularyIndex(tokenizer)
    phrases = data.draw(st.lists(st.sampled_from(PHRASES), min_size=1, max_size=2))
    told = data.draw(st.sampled_from(["", "the", "in", "in th", "caf", "a dog,", "the \u20ac"]))
    ids = tokenizer.encode(told)
    ids = ids[: data.draw(st.integers(0, len(ids)))]
    before = tokenizer.decode(ids)
    completes = {
        token
        for token in range(len(tokenizer))
        for phrase in phrases
        for text in [tokenizer.decode([*ids, token])]
        if any(end > len(before.rstrip("\ufffd")) for end in places(text, phrase))
    }
    assert forbidden(ForbiddenText(phrases, spelled), ids, len(tokenizer)) == completes


def test_a_character_that_is_spelled_in_bytes_is_forbidden_at_its_last_byte():
    tokenizer = text_pair("subword").target
    ids = tokenizer.encode("the \u20ac")
    rule = ForbiddenText(["\u20ac"], VocabularyIndex(tokenizer))
    assert forbidden(rule, ids[:-1], len(tokenizer)) == {ids[-1]}
    assert not forbidden(rule, ids[:-2], len(tokenizer))


def test_phrases_are_normalised_as_texts_are():
    from heedful.tokenization.tokenizer import WordTokenizerConfig

    tokenizer = WordTokenizerConfig(normalization={"lowercase": True}).train(["the dog"])
    rule = ForbiddenText(["THE "], VocabularyIndex(tokenizer))
    assert forbidden(rule, [], len(tokenizer)) == set(tokenizer.encode("the"))


@pytest.mark.parametrize(
    ("text", "phrase", "is_in"),
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
def test_a_phrase_is_held_as_whole_words(text, phrase, is_in):
    assert contains_phrase(text, phrase) is is_in
    assert bool(places(text, phrase)) is is_in
