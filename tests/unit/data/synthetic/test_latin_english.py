"""English forms and verb groups."""

import pytest

from heedful.data.synthetic.latin.lexicon import load_lexicon
from heedful.data.synthetic.latin.morphology import (
    BE,
    EnglishVerb,
    Number,
    Person,
    Tense,
    verb_group,
)
from heedful.data.synthetic.latin.syntax import NounPhrase


@pytest.mark.parametrize(
    ("tense", "statement", "question"),
    [
        (Tense.PRESENT, ("", "walks"), ("does", "walk")),
        (Tense.IMPERFECT, ("was", "walking"), ("was", "walking")),
        (Tense.PERFECT, ("", "walked"), ("did", "walk")),
    ],
)
def test_tenses_have_one_english_rendering(tense, statement, question):
    walk = EnglishVerb("walk", "walks", "walked", "walking")
    assert (
        verb_group(walk, tense, Person.THIRD, Number.SINGULAR, needs_auxiliary=False) == statement
    )
    assert verb_group(walk, tense, Person.THIRD, Number.SINGULAR, needs_auxiliary=True) == question


def test_stative_verbs_have_no_progressive():
    love = EnglishVerb("love", "loves", "loved", "loving", is_stative=True)
    third = Person.THIRD, Number.SINGULAR
    assert verb_group(love, Tense.IMPERFECT, *third, needs_auxiliary=False) == ("", "loved")
    assert verb_group(love, Tense.IMPERFECT, *third, needs_auxiliary=True) == ("did", "love")


def test_be_agrees_with_subject():
    def be(tense):
        return " ".join(
            verb_group(BE, tense, person, number, needs_auxiliary=False)[0]
            for number in Number
            for person in Person
        )

    assert be(Tense.PRESENT) == "am are is are are are"
    assert be(Tense.IMPERFECT) == be(Tense.PERFECT) == "was were was were were were"


def test_indefinite_article_follows_vowels():
    slave = NounPhrase(next(noun for noun in load_lexicon().nouns if noun.lemma == "servus"))
    angry = next(word for word in load_lexicon().adjectives if word.english == "angry")
    assert slave.as_predicate() == "a slave"
    assert slave._replace(adjective=angry).as_predicate() == "an angry slave"
