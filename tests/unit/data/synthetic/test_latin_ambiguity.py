"""No sentence of the grammar has two translations."""

from collections import defaultdict
from itertools import islice, permutations, product

import pytest

from heedful.data.synthetic import get_corpus
from heedful.data.synthetic.latin.lexicon import load_lexicon
from heedful.data.synthetic.latin.morphology import Number
from heedful.data.synthetic.latin.syntax import (
    Clause,
    Coordination,
    NounPhrase,
    english,
    is_ambiguous,
    latin,
    latin_slots,
)
from heedful.data.text.pair_dataset import Pair

NOUNS = {noun.lemma: noun for noun in load_lexicon().nouns}
VERBS = {verb.lemma: verb for verb in load_lexicon().verbs}
ADJECTIVES = {adjective.lemma: adjective for adjective in load_lexicon().adjectives}


DITRANSITIVE = ("do", ("subject", "object", "recipient"))


def sg(lemma, **rest):
    return NounPhrase(NOUNS[lemma], **rest)


def pl(lemma, **rest):
    return NounPhrase(NOUNS[lemma], Number.PLURAL, **rest)


def ambiguous(slots, verb, subject, **roles):
    clause = Clause(VERBS[verb], subject, **roles)
    return is_ambiguous(clause, latin_slots(clause), slots.split())


def all_phrases(lemmas):
    """Each noun in both numbers: bare, with an adjective on either side, with each possessor."""
    for lemma, number in product(lemmas, Number):
        bare = NounPhrase(NOUNS[lemma], number)
        yield bare
        yield bare._replace(adjective=ADJECTIVES["bonus"])
        yield bare._replace(adjective=ADJECTIVES["bonus"], adjective_first=True)
        for owner in set(lemmas) - {lemma}:
            owned = bare._replace(possessor=sg(owner))
            yield owned
            yield owned._replace(adjective=ADJECTIVES["bonus"])


def all_sentences(verb, roles, lemmas):
    """Each clause with such phrases in each word order, and whether it is ambiguous."""
    for phrases in product(*(list(all_phrases(lemmas)) for _ in roles)):
        if len({phrase.noun for phrase in phrases}) == len(roles):
            clause = Clause(VERBS[verb], **dict(zip(roles, phrases, strict=True)))
            chunks = latin_slots(clause)
            for order in permutations((*roles, "verb")):
                pair = Pair(latin(clause, chunks, order), english(clause))
                yield pair, is_ambiguous(clause, chunks, order)


def translations(pairs):
    targets = defaultdict(set)
    for pair in pairs:
        targets[pair.source].add(pair.target)
    return targets


def ambiguous_sources(pairs):
    return [source for source, targets in translations(pairs).items() if len(targets) > 1]


def test_syncretic_subject_and_object_are_ambiguous():
    arguments = {"subject": pl("rex"), "object": pl("civis")}
    assert ambiguous("subject object verb", "video", **arguments)


def test_distinct_ending_of_either_argument_disambiguates():
    assert not ambiguous("subject object verb", "video", pl("rex"), object=sg("civis"))
    assert not ambiguous("subject object verb", "video", sg("rex"), object=pl("civis"))


def test_agreeing_adjective_disambiguates():
    # boni reges cives vident: boni cannot be an object
    reges = pl("rex", adjective=ADJECTIVES["bonus"], adjective_first=True)
    assert not ambiguous("subject object verb", "video", reges, object=pl("civis"))


def test_syncretic_subject_and_recipient_are_ambiguous():
    arguments = {"subject": pl("puella"), "recipient": sg("regina")}
    assert ambiguous("subject recipient verb", "pareo", **arguments)


def test_possessor_that_may_be_subject_is_ambiguous():
    books = pl("liber", possessor=sg("servus"))  # libros servi puellae vident
    assert ambiguous("object subject verb", "video", pl("puella"), object=books)
    assert not ambiguous("object subject verb", "video", pl("miles"), object=books)


def test_adjective_between_two_agreeing_nouns_is_ambiguous():
    animal = sg("animal", adjective=ADJECTIVES["magnus"], adjective_first=True)
    assert ambiguous("object subject verb", "terreo", animal, object=sg("servus"))
    assert not ambiguous("subject object verb", "terreo", animal, object=sg("servus"))


def test_coordinated_subject_of_unclear_number_is_ambiguous():
    assert ambiguous("subject verb", "dormio", Coordination(sg("canis"), sg("feles")))
    assert not ambiguous("subject verb", "dormio", Coordination(sg("canis"), sg("avis")))


@pytest.mark.parametrize(
    ("verb", "roles", "lemmas"),
    [
        ("video", ("subject", "object"), ("puella", "servus", "rex", "animal", "exercitus")),
        ("pareo", ("subject", "recipient"), ("puella", "servus", "civis", "filia")),
        pytest.param(*DITRANSITIVE, ("puella", "animal", "regina"), marks=pytest.mark.slow),
        pytest.param(*DITRANSITIVE, ("servus", "filia", "feles"), marks=pytest.mark.slow),
    ],
)
@pytest.mark.wide
def test_kept_sentences_of_small_lexicon_have_one_translation(verb, roles, lemmas):
    sentences = list(all_sentences(verb, roles, lemmas))
    kept = [pair for pair, rejected in sentences if not rejected]
    assert len(kept) > len(sentences) / 3
    assert ambiguous_sources(pair for pair, _ in sentences)
    assert ambiguous_sources(kept) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_sampled_sources_have_one_translation(seed):
    pairs = islice(get_corpus("latin").pairs("train", seed=seed), 50_000)
    assert ambiguous_sources(pairs) == []
