"""The lexicon: large enough, and no form in it belongs to two words."""

from collections import defaultdict

import pytest

from heedful.data.synthetic.latin import word_lists
from heedful.data.synthetic.latin.lexicon import SUM, load_lexicon
from heedful.data.synthetic.latin.morphology import Case, Number
from heedful.data.synthetic.latin.syntax import QUESTIONS
from heedful.data.synthetic.latin.word_lists import NOUN_CATEGORIES


def rows(table):
    return [line.split() for line in table.strip().splitlines()]


def forms_by_word():
    """Give every form of every word; names too, for a sentence begins with a capital anyway."""
    familiar, reserved = load_lexicon(), load_lexicon(reserved_names=True)
    nouns = {noun.lemma: noun for noun in (*familiar.nouns, *reserved.nouns)}
    for noun in nouns.values():
        yield noun.lemma, {word.text for row in noun.words for word in row}
    for adjective in familiar.adjectives:
        numbers = (Number.PLURAL,) if adjective.is_quantifier else tuple(Number)
        yield (
            adjective.lemma,
            {word.text for gender in adjective.after for each in numbers for word in gender[each]},
        )
    for verb in (*familiar.verbs, SUM):
        finite = {form for tense in verb.forms.finite for row in tense for form in row}
        yield verb.lemma, {*finite, *(f"{form}ne" for form in finite), *verb.forms.imperatives}
    for small in (*familiar.prepositions, *familiar.adverbs):
        yield small.latin.text, {small.latin.text}
    for row in rows(word_lists.PRONOUNS):
        yield row[0], set(row[:3])
    for word in (*QUESTIONS, "et", "non"):
        yield word, {word}


def test_the_lexicon_is_large():
    words = load_lexicon()
    assert sum(not noun.is_name for noun in words.nouns) >= 120
    assert len(words.verbs) >= 70
    assert len(words.adjectives) >= 40


def test_every_declension_and_conjugation_is_there():
    genitives = {
        noun.words[0][Case.GENITIVE].text[-2:] for noun in load_lexicon().nouns if not noun.is_name
    }
    assert {"ae", "is", "us", "ei"} <= genitives
    infinitive_vowels = {verb.forms.imperatives[1][-3:] for verb in load_lexicon().verbs}
    assert {"ate", "ete", "ite"} <= infinitive_vowels


def test_no_form_belongs_to_two_words():
    owners = defaultdict(set)
    for lemma, forms in forms_by_word():
        for form in forms:
            owners[form.lower()].add(lemma)
    assert {form: words for form, words in owners.items() if len(words) > 1} == {}


@pytest.mark.parametrize("verb", load_lexicon().verbs, ids=lambda verb: verb.lemma)
def test_no_form_of_a_verb_has_two_meanings(verb):
    finite = [form for tense in verb.forms.finite for row in tense for form in row]
    forms = [*finite, *verb.forms.imperatives]
    assert len(set(forms)) == len(forms)


@pytest.mark.parametrize("noun", load_lexicon().nouns, ids=lambda noun: noun.lemma)
def test_number_shows_in_every_case_but_the_nominative(noun):
    if len(noun.words) == 2:
        for case in (Case.ACCUSATIVE, Case.GENITIVE, Case.DATIVE, Case.ABLATIVE):
            assert noun.words[0][case].text != noun.words[1][case].text


@pytest.mark.parametrize("noun", load_lexicon().nouns, ids=lambda noun: noun.lemma)
def test_into_a_place_and_in_it_are_told_apart(noun):
    accusatives = {row[Case.ACCUSATIVE].text for row in noun.words}
    ablatives = {row[Case.ABLATIVE].text for row in noun.words}
    assert not accusatives & ablatives or "place" not in noun.tags


def test_every_kind_that_is_named_exists():
    words = load_lexicon()
    named = {letter for verb in words.verbs for letter in verb.subjects + verb.objects}
    named |= {letter for adjective in words.adjectives for letter in adjective.categories}
    assert named - {"-"} == set(NOUN_CATEGORIES)
    assert {noun.category for noun in words.nouns} == set(NOUN_CATEGORIES)


def test_every_preposition_has_more_nouns_than_a_sentence_has_places():
    assert min(len(preposition.nouns) for preposition in load_lexicon().prepositions) > 2


def test_each_latin_word_has_an_english_word_of_its_own():
    words = load_lexicon()
    english = [noun.english[0] for noun in words.nouns]
    english += [verb.english.base for verb in words.verbs]
    english += [adjective.english for adjective in words.adjectives]
    assert len(set(english)) == len(english)


def test_names_are_many_and_some_are_kept_back():
    familiar, reserved = rows(word_lists.FAMILIAR), rows(word_lists.RESERVED)
    assert len(familiar) + len(reserved) >= 40
    assert 8 <= len(reserved) <= 10
    assert not {row[0] for row in familiar} & {row[0] for row in reserved}
    for table in (familiar, reserved):
        assert {row[2] for row in table} == {"m", "f"}
        assert {row[1][-2:] for row in table} >= {"ae", "is"}
