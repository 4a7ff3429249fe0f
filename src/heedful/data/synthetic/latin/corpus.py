"""The Latin corpus: random clauses and word orders, kept if they have a single reading.

The English of a sentence determines its split, so all word orders of a sentence fall into one
split. A sentence with a reserved name is in the split `names` and in no other. Invariant: the
same state of `Random` gives the same sentences; words are drawn in the order of the tables.
"""

import re
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import TypeVar

from typing_extensions import override

from heedful.data.synthetic.corpus import Corpus, assign_split
from heedful.data.synthetic.latin import syntax
from heedful.data.synthetic.latin.lexicon import (
    SUM,
    Adjective,
    Adverb,
    Lexicon,
    Noun,
    Verb,
    load_lexicon,
)
from heedful.data.synthetic.latin.morphology import Gender, Number, Person, Tense
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Argument,
    Clause,
    NounPhrase,
    Pronoun,
    is_ambiguous,
)
from heedful.data.text.pair_dataset import Pair

UNSEEN_NAMES_SPLIT = "names"

# An entry that is listed several times is sampled as often.
_VALENCES = ("intransitive",) * 6 + ("transitive",) * 9 + ("ditransitive",) * 3 + ("dative",) * 2
_FRAMES = ("copular",) * 5 + _VALENCES
_TENSES = (Tense.PRESENT,) * 4 + (Tense.IMPERFECT,) * 3 + (Tense.PERFECT,) * 3
_COMPLEMENTS = ("place", "place", "quality", "quality", "person", "asked place")
_COPULAR_QUESTIONS = ("-ne", "-ne", "num", "nonne", "quis", "cur")
_IDENTITY_QUESTIONS = ("-ne", "num", "nonne")
_QUESTIONS_WITH_ADVERBS = ("-ne", "num", "nonne", "quis", "cur")
_QUESTIONS_WITH_NEGATION = ("quis", "cur")
_LOCATED = "patfrub"  # categories of the subject of "is in the garden"
_MAX_MODIFIERS = 2  # adjectives and possessors of a sentence
Item = TypeVar("Item")


class LatinCorpus(Corpus):
    """Latin sentences and their English."""

    name = "latin"
    description = "Latin sentences with free word order, and their English"
    splits = ("train", "dev", "test", UNSEEN_NAMES_SPLIT)

    @override
    def generate(self, split: str, random: Random) -> Iterator[Pair]:
        lexicon = load_lexicon(reserved_names=split == UNSEEN_NAMES_SPLIT)
        sampler = SentenceSampler(lexicon, random)
        while True:
            yield sampler.sample()

    @override
    def is_in_split(self, pair: Pair, split: str) -> bool:
        if split == UNSEEN_NAMES_SPLIT:
            return _reserved_name_pattern().search(pair.target) is not None
        return assign_split(pair.target) == split


def reserved_names() -> list[str]:
    """Return the names that occur in the split `names` only."""
    return [noun.lemma for noun in load_lexicon(reserved_names=True).names]


@cache
def _reserved_name_pattern() -> re.Pattern[str]:
    return re.compile(rf"\b({'|'.join(reserved_names())})\b")


class SentenceSampler:
    """Samples one sentence after another, in both languages. No noun occurs twice in one."""

    def __init__(self, lexicon: Lexicon, random: Random) -> None:
        self._lexicon = lexicon
        self._random = random
        self._uniform = random.random
        self._pronouns = syntax.read_pronouns()
        self._listeners = [
            pronoun._replace(is_overt=False)
            for pronoun in self._pronouns
            if pronoun.person is Person.SECOND
        ]

    def sample(self) -> Pair:
        """Return a sentence that has a single reading."""
        while True:
            self._used: list[Noun] = []
            self._num_modifiers = 0
            clause = self._clause()
            chunks = syntax.latin_slots(clause)
            order = _sample_order(clause, chunks, self._random)
            if not is_ambiguous(clause, chunks, order):
                return Pair(syntax.latin(clause, chunks, order), syntax.english(clause))

    def _flip(self, probability: float) -> bool:
        return self._uniform() < probability

    def _pick(self, items: Sequence[Item]) -> Item:
        """Return a random item; `Random.choice` takes three calls for it."""
        return items[int(self._uniform() * len(items))]

    # ----- clauses

    def _clause(self) -> Clause:
        frame = self._pick(_FRAMES)
        if frame == "copular":
            return self._copular_clause(self._pick(_COMPLEMENTS))
        verb = self._pick(self._lexicon.verbs_by_frame[frame])
        if not verb.english.is_stative and self._flip(0.13):
            return self._imperative(verb)
        question = self._pick(_questions(verb)) if self._flip(0.28) else None
        return self._verbal_clause(verb, question)

    def _verbal_clause(self, verb: Verb, question: syntax.Question | None) -> Clause:
        replaced = question.questioned_slot if question else None
        is_direct = question is QUESTIONS["-ne"]
        has_subject = replaced != "subject"
        subject = self._subject(verb.subjects, is_direct=is_direct) if has_subject else None
        tense = self._pick(_TENSES)
        is_negated = self._negation(question)
        direct, recipient = self._objects(verb, subject, replaced)
        clause = Clause(
            verb,
            subject,
            tense,
            direct,
            recipient,
            place=self._optional_place(verb) if replaced != "place" else None,
            adverb=self._adverb(verb, tense, question, is_negated=is_negated),
            is_negated=is_negated,
            question=question,
        )
        if _is_one_word(clause):
            assert isinstance(subject, Pronoun)
            return clause._replace(subject=subject._replace(is_overt=True))
        return clause

    def _imperative(self, verb: Verb) -> Clause:
        number = self._pick((Number.SINGULAR, Number.SINGULAR, Number.PLURAL))
        listener = self._listeners[number]
        adverb = self._pick(self._lexicon.adverbs_by_tense[Tense.PRESENT, True])
        direct, recipient = self._objects(verb, listener)
        clause = Clause(
            verb,
            listener,
            object=direct,
            recipient=recipient,
            place=self._optional_place(verb),
            adverb=adverb if not adverb.is_middle and self._flip(0.15) else None,
            is_command=True,
        )
        if not self._flip(0.5) and not _is_one_word(clause):
            return clause
        if number is Number.SINGULAR and self._flip(0.5):
            return clause._replace(addressee=NounPhrase(self._noun(self._lexicon.names)))
        return clause._replace(addressee=NounPhrase(self._noun(self._lexicon.people), number))

    def _copular_clause(self, complement: str) -> Clause:
        tense = self._pick(_TENSES)
        if complement == "asked place":
            located = self._subject(_LOCATED, is_plain=True)
            return Clause(SUM, located, tense, question=QUESTIONS["ubi"])
        is_identity, is_located = complement == "person", complement == "place"
        words = _IDENTITY_QUESTIONS if is_identity else _COPULAR_QUESTIONS
        question = QUESTIONS[self._pick(words)] if self._flip(0.25) else None
        subject: Argument | None = None
        if is_identity:
            subject = NounPhrase(self._noun(self._lexicon.names))
        elif question is not QUESTIONS["quis"]:
            subject = self._subject(_LOCATED if is_located else SUM.subjects, is_plain=True)
        is_negated = self._negation(question)
        adverb = self._adverb(SUM, tense, question, is_negated=is_negated)
        clause = Clause(SUM, subject, tense, is_negated=is_negated, question=question)
        if is_identity:
            return clause._replace(predicate=self._person(clause.gender))
        category = subject.noun.category if isinstance(subject, NounPhrase) else "p"
        if is_located:
            place = self._place("company" if category in "pa" else "rest", is_plain=True)
            return clause._replace(place=place, adverb=adverb)
        return clause._replace(predicate=self._adjective(category), adverb=adverb)

    def _negation(self, question: syntax.Question | None) -> bool:
        can_negate = question is None or question.latin in _QUESTIONS_WITH_NEGATION
        return can_negate and self._flip(0.15)

    def _adverb(
        self, verb: Verb, tense: Tense, question: syntax.Question | None, *, is_negated: bool
    ) -> Adverb | None:
        is_allowed = question is None or question.latin in _QUESTIONS_WITH_ADVERBS
        if not is_allowed or not self._flip(0.18):
            return None
        is_action = not verb.english.is_stative  # only actions take adverbs of manner
        adverb = self._pick(self._lexicon.adverbs_by_tense[tense, is_action])
        # "semper non" is not "non semper"; and "never" is not combined with a question.
        is_misplaced = adverb.is_middle and is_negated
        is_doubled = adverb.english == "never" and question is not None
        return None if is_misplaced or is_doubled else adverb

    # ----- phrases

    def _subject(
        self, categories: str, *, is_plain: bool = False, is_direct: bool = False
    ) -> Argument:
        """Sample a subject; a plain one has no adjective, a direct pronoun is the listener."""
        sample = self._uniform()
        if sample < 0.25 and "p" in categories:
            pronouns = self._listeners[:1] if is_direct else self._pronouns
            return self._pick(pronouns)._replace(is_overt=self._flip(0.3))
        if sample < 0.32 and "p" in categories:
            lexicon = self._lexicon
            nouns = lexicon.animates if "a" in categories else lexicon.nouns_of("p")
            return syntax.Coordination(self._bare_phrase(nouns), self._bare_phrase(nouns))
        return self._noun_phrase(self._lexicon.nouns_of(categories), is_plain=is_plain)

    def _objects(
        self, verb: Verb, subject: Argument | None, replaced: syntax.Slot | None = None
    ) -> tuple[Argument | None, Argument | None]:
        """Sample the object and the recipient that the verb takes, unless a question has it."""
        direct = recipient = None
        if verb.frame in ("transitive", "ditransitive") and replaced != "object":
            direct = self._argument(verb.objects, subject)
        if verb.frame in ("ditransitive", "dative") and replaced != "recipient":
            categories = "p" if verb.frame == "ditransitive" else verb.objects
            recipient = self._argument(categories, subject)
        return direct, recipient

    def _argument(self, categories: str, subject: Argument | None) -> Argument:
        if "p" in categories and self._flip(0.08):
            pronoun = self._pick(self._pronouns)
            while isinstance(subject, Pronoun) and pronoun.person is subject.person:
                pronoun = self._pick(self._pronouns)
            return pronoun
        return self._noun_phrase(self._lexicon.nouns_of(categories))

    def _optional_place(self, verb: Verb) -> syntax.PrepositionalPhrase | None:
        if not self._flip(0.6 if verb.frame == "intransitive" else 0.2):
            return None
        return self._place("company" if verb.place == "rest" else verb.place)

    def _place(self, kind: str, *, is_plain: bool = False) -> syntax.PrepositionalPhrase | None:
        prepositions = self._lexicon.prepositions_by_place[kind]
        if not prepositions:
            return None
        preposition = self._pick(prepositions)
        phrase = self._noun_phrase(preposition.nouns, is_plain=is_plain)
        return syntax.PrepositionalPhrase(preposition, phrase)

    def _person(self, gender: Gender) -> NounPhrase:
        """Sample a person of this gender: a slave, the friend of the king."""
        noun = self._noun(self._lexicon.people)
        while noun.gender is not gender:
            noun = self._noun(self._lexicon.people)
        return self._with_modifiers(NounPhrase(noun))

    def _noun_phrase(self, nouns: Sequence[Noun], *, is_plain: bool = False) -> NounPhrase:
        return self._with_modifiers(self._bare_phrase(nouns), is_plain=is_plain)

    def _bare_phrase(self, nouns: Sequence[Noun]) -> NounPhrase:
        noun = self._noun(nouns)
        is_plural = len(noun.words) > 1 and self._flip(0.45)
        return NounPhrase(noun, Number.PLURAL if is_plural else Number.SINGULAR)

    def _noun(self, nouns: Sequence[Noun]) -> Noun:
        noun = self._pick(nouns)
        while noun in self._used:
            noun = self._pick(nouns)
        self._used.append(noun)
        return noun

    def _adjective(self, category: str) -> Adjective:
        return self._pick(self._lexicon.adjectives_by_category[category, False])

    def _with_modifiers(self, phrase: NounPhrase, *, is_plain: bool = False) -> NounPhrase:
        noun = phrase.noun
        if noun.is_name or self._num_modifiers >= _MAX_MODIFIERS:
            return phrase
        sample = self._uniform()
        if sample >= 0.26 or is_plain:
            has_possessor = sample < 0.4 and "owned" in noun.tags
            return self._with_possessor(phrase) if has_possessor else phrase
        self._num_modifiers += 1
        adjective, is_first = self._adjective(noun.category), self._flip(0.35)
        quantifiers = self._lexicon.adjectives_by_category[noun.category, True]
        if phrase.number is Number.PLURAL and self._flip(0.15) and quantifiers:
            adjective, is_first = self._pick(quantifiers), True
        phrase = phrase._replace(adjective=adjective, adjective_first=is_first)
        can_be_owned = "owned" in noun.tags and self._num_modifiers < _MAX_MODIFIERS
        return self._with_possessor(phrase) if can_be_owned and self._flip(0.1) else phrase

    def _with_possessor(self, phrase: NounPhrase) -> NounPhrase:
        self._num_modifiers += 1
        possessor = self._bare_phrase(self._lexicon.nouns_of("p"))
        can_modify = not possessor.noun.is_name and self._num_modifiers < _MAX_MODIFIERS
        if can_modify and self._flip(0.15):
            self._num_modifiers += 1
            possessor = possessor._replace(adjective=self._adjective("p"), adjective_first=True)
        return phrase._replace(possessor=possessor)


@cache
def _questions(verb: Verb) -> tuple[syntax.Question, ...]:
    # A question that is listed twice is sampled twice as often.
    words = ["-ne", "-ne", "-ne", "-ne", "num", "nonne", "quis", "quis", "cur", "quando"]
    words += ["ubi"] * (verb.place in ("rest", "motion"))
    if verb.frame in ("transitive", "ditransitive"):
        words += ["quem"] * ("p" in verb.objects) + ["quid"] * ("t" in verb.objects)
    words += ["cui"] * (verb.frame == "ditransitive")
    return tuple(QUESTIONS[word] for word in words)


def _is_one_word(clause: Clause) -> bool:
    is_covert = isinstance(clause.subject, Pronoun) and not clause.subject.is_overt
    has_question_word = clause.question and clause.question is not QUESTIONS["-ne"]
    others = (clause.object, clause.recipient, clause.place, clause.adverb, has_question_word)
    return is_covert and not (clause.is_negated or any(others))


# --- word order ----------------------------------------------------------------------------

_SUBJECT_FIRST = 0.6
_VERB_LAST = 0.6
_VERB_FIRST = 0.4  # of verbs that may open a statement: first person singular present, "amo"
_FIXED_SLOTS = ("question", "verb", "addressee")


def _sample_order(clause: Clause, slots: syntax.Chunks, random: Random) -> list[syntax.Slot]:
    """Sample an order: question word first, subject often first, verb often last."""
    order = [slot for slot in slots if slot not in _FIXED_SLOTS]
    random.shuffle(order)
    if "subject" in order and random.random() < _SUBJECT_FIRST:
        order.remove("subject")
        order.insert(0, "subject")
    order.insert(_verb_position(clause, len(order), random), "verb")
    if "question" in slots:
        order.insert(0, "question")
    if "addressee" in slots:
        order.insert(random.choice((0, len(order))), "addressee")
    return order


def _verb_position(clause: Clause, num_others: int, random: Random) -> int:
    if clause.question and clause.question.latin == "-ne":
        return 0
    if clause.is_command:
        return random.choice((0, num_others))
    agreement = (clause.person, clause.number, clause.tense)
    is_dictionary_form = agreement == (Person.FIRST, Number.SINGULAR, Tense.PRESENT)
    if is_dictionary_form and random.random() < _VERB_FIRST:
        return 0
    if random.random() < _VERB_LAST or not num_others:
        return num_others
    return random.randrange(0 if clause.question else 1, num_others + 1)
