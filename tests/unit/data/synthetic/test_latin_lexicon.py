"""The lexicon: large enough, and no form in it belongs to two words."""

from collections import defaultdict

import pytest

from heedful.data.synthetic.latin import lexicon
from heedful.data.synthetic.latin.lexicon import (
    NOUN_CATEGORIES,
    SUM,
    TABLES,
    load_lexicon,
    read_table,
)
from heedful.data.synthetic.latin.morphology import Case, Number
from heedful.data.synthetic.latin.syntax import QUESTIONS


def forms_by_word():
    """Yield all forms of every word; names too, because sentences are capitalized."""
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
    for row in read_table("pronouns"):
        yield row[0], set(row[:3])
    for word in (*QUESTIONS, "et", "non"):
        yield word, {word}


def test_lexicon_covers_declensions_and_conjugations():
    genitives = {
        noun.words[0][Case.GENITIVE].text[-2:] for noun in load_lexicon().nouns if not noun.is_name
    }
    assert {"ae", "is", "us", "ei"} <= genitives
    infinitive_vowels = {verb.forms.imperatives[1][-3:] for verb in load_lexicon().verbs}
    assert {"ate", "ete", "ite"} <= infinitive_vowels


def test_word_forms_are_unique_across_lexicon():
    owners = defaultdict(set)
    for lemma, forms in forms_by_word():
        for form in forms:
            owners[form.lower()].add(lemma)
    assert {form: words for form, words in owners.items() if len(words) > 1} == {}


def test_verb_forms_are_unique():
    for verb in load_lexicon().verbs:
        finite = [form for tense in verb.forms.finite for row in tense for form in row]
        forms = [*finite, *verb.forms.imperatives]
        assert len(set(forms)) == len(forms), verb.lemma


def test_oblique_cases_distinguish_number():
    for noun in load_lexicon().nouns:
        if len(noun.words) == 2:
            for case in (Case.ACCUSATIVE, Case.GENITIVE, Case.DATIVE, Case.ABLATIVE):
                assert noun.words[0][case].text != noun.words[1][case].text, noun.lemma


def test_accusative_and_ablative_of_places_differ():
    for noun in load_lexicon().nouns:
        accusatives = {row[Case.ACCUSATIVE].text for row in noun.words}
        ablatives = {row[Case.ABLATIVE].text for row in noun.words}
        assert not accusatives & ablatives or "place" not in noun.tags, noun.lemma


def test_noun_categories_all_used():
    words = load_lexicon()
    named = {letter for verb in words.verbs for letter in verb.subjects + verb.objects}
    named |= {letter for adjective in words.adjectives for letter in adjective.categories}
    assert named - {"-"} == set(NOUN_CATEGORIES)
    assert {noun.category for noun in words.nouns} == set(NOUN_CATEGORIES)


def test_prepositions_govern_enough_nouns():
    assert min(len(preposition.nouns) for preposition in load_lexicon().prepositions) > 2


def test_english_translations_are_unique():
    words = load_lexicon()
    english = [noun.english[0] for noun in words.nouns]
    english += [verb.english.base for verb in words.verbs]
    english += [adjective.english for adjective in words.adjectives]
    assert len(set(english)) == len(english)


def test_reserved_names_are_disjoint_from_training_names():
    familiar, reserved = (
        [row[1:] for row in read_table("names") if row[0] == split] for split in ("train", "names")
    )
    assert len(familiar) + len(reserved) >= 40
    assert 8 <= len(reserved) <= 10
    assert not {row[0] for row in familiar} & {row[0] for row in reserved}
    for table in (familiar, reserved):
        assert {row[2] for row in table} == {"m", "f"}
        assert {row[1][-2:] for row in table} >= {"ae", "is"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nominative\tcase\n", "pronouns.tsv: unexpected columns"),
        ("{header}\nego\tme\n", "pronouns.tsv:2: expected 5 cells"),
        ("{header}\nego\tme\tmihi\t\tme\n", "pronouns.tsv:2: expected 5 cells"),
        ("{header}\nego\tme\tmihi\t I\tme\n", "pronouns.tsv:2: expected 5 cells"),
    ],
)
def test_read_table_rejects_malformed_tables(text, message, tmp_path, monkeypatch):
    monkeypatch.setattr(lexicon.resources, "files", lambda _: tmp_path)
    header = "\t".join(TABLES["pronouns"].split())
    (tmp_path / "pronouns.tsv").write_text(text.format(header=header))
    with pytest.raises(AssertionError, match=message):
        read_table("pronouns")
