"""No sentence of the grammar has two translations."""

from collections import defaultdict
from dataclasses import replace
from itertools import islice
from random import Random

import pytest

from heedful.data.synthetic import corpus
from heedful.data.synthetic.latin import drawing
from heedful.data.synthetic.latin.ambiguity import is_ambiguous
from heedful.data.synthetic.latin.drawing import Speaker
from heedful.data.synthetic.latin.lexicon import Lexicon, lexicon
from heedful.data.synthetic.latin.phrases import Joined, NounPhrase
from heedful.data.synthetic.latin.sentences import Clause, latin_chunks
from heedful.data.synthetic.latin.terms import Number

NOUNS = {noun.lemma: noun for noun in lexicon().nouns}
VERBS = {verb.lemma: verb for verb in lexicon().verbs}
ADJECTIVES = {adjective.lemma: adjective for adjective in lexicon().adjectives}

# Of each kind a few, with forms that fall together as often as can be.
FEW_NOUNS = {"puella", "servus", "filia", "rex", "civis", "Livia"}  # persons
FEW_NOUNS |= {"feles", "animal", "donum", "liber", "exercitus"}
FEW_NOUNS |= {"villa", "templum", "palatium", "hortus"}
FEW_VERBS = {"video", "terreo", "do", "pareo", "ambulo"}
FEW_ADJECTIVES = {"bonus", "multus"}


def one(lemma, **rest):
    return NounPhrase(NOUNS[lemma], **rest)


def some(lemma, **rest):
    return NounPhrase(NOUNS[lemma], Number.PLURAL, **rest)


def ambiguous(slots, verb, subject, **roles):
    clause = Clause(VERBS[verb], subject, **roles)
    return is_ambiguous(clause, latin_chunks(clause), slots.split())


def small_lexicon():
    """So few words that the same Latin comes up again and again."""
    whole = lexicon()
    few = tuple(noun for noun in whole.nouns if noun.lemma in FEW_NOUNS)
    prepositions = (
        replace(each, nouns=tuple(noun for noun in each.nouns if noun in few))
        for each in whole.prepositions
    )
    return Lexicon(
        few,
        tuple(each for each in whole.adjectives if each.lemma in FEW_ADJECTIVES),
        tuple(each for each in whole.verbs if each.lemma in FEW_VERBS),
        tuple(each for each in prepositions if len(each.nouns) > 2),
        whole.adverbs[:1],
    )


def translations(pairs):
    found = defaultdict(set)
    for pair in pairs:
        found[pair.source].add(pair.target)
    return found


def test_subject_and_object_that_look_alike_are_ambiguous():
    rivals = {"subject": some("rex"), "object": some("civis")}
    assert ambiguous("subject object verb", "video", **rivals)


def test_an_ending_on_either_side_is_enough():
    assert not ambiguous("subject object verb", "video", some("rex"), object=one("civis"))
    assert not ambiguous("subject object verb", "video", one("rex"), object=some("civis"))


def test_an_adjective_may_settle_it():
    # boni reges cives vident: boni cannot be an object
    reges = some("rex", adjective=ADJECTIVES["bonus"], adjective_first=True)
    assert not ambiguous("subject object verb", "video", reges, object=some("civis"))


def test_subject_and_recipient_that_look_alike_are_ambiguous():
    rivals = {"subject": some("puella"), "recipient": one("regina")}
    assert ambiguous("subject recipient verb", "pareo", **rivals)


def test_an_owner_that_may_be_the_subject_is_ambiguous():
    books = some("liber", owner=one("servus"))  # libros servi puellae vident
    assert ambiguous("object subject verb", "video", some("puella"), object=books)
    assert not ambiguous("object subject verb", "video", some("miles"), object=books)


def test_an_adjective_between_two_nouns_it_agrees_with_is_ambiguous():
    beast = one("animal", adjective=ADJECTIVES["magnus"], adjective_first=True)
    assert ambiguous("object subject verb", "terreo", beast, object=one("servus"))
    assert not ambiguous("subject object verb", "terreo", beast, object=one("servus"))


def test_one_cat_or_many_beside_another_subject_is_ambiguous():
    assert ambiguous("subject verb", "dormio", Joined(one("canis"), one("feles")))
    assert not ambiguous("subject verb", "dormio", Joined(one("canis"), one("avis")))


def test_every_sentence_found_with_two_translations_had_been_rejected(monkeypatch):
    verdicts = []

    def note(clause, chunks, order):
        verdicts.append(is_ambiguous(clause, chunks, order))
        return False

    monkeypatch.setattr(drawing, "is_ambiguous", note)
    speaker = Speaker(small_lexicon(), Random(0))
    pairs = [speaker.speak() for _ in range(40_000)]
    accepted = {pair.source for pair, rejected in zip(pairs, verdicts, strict=True) if not rejected}
    found = {source for source, targets in translations(pairs).items() if len(targets) > 1}
    assert len(found) > 100
    assert not found & accepted


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_no_source_of_many_has_two_translations(seed):
    pairs = islice(corpus("latin").pairs("train", seed=seed), 50_000)
    assert all(len(targets) == 1 for targets in translations(pairs).values())
