"""English: how are nouns and verbs said in the translation?

One rendering for each Latin tense: present "walks", imperfect "was walking", perfect "walked".
Verbs of state have no progressive in English, so their imperfect is "loved", as is their
perfect. Common nouns take "the", because Latin has no article to translate.
"""

from __future__ import annotations

from typing import NamedTuple

from heedful.data.synthetic.latin.terms import Number, Person, Tense


class EnglishVerb(NamedTuple):
    """The four forms of an English verb: walk, walks, walked, walking."""

    base: str
    third: str
    past: str
    participle: str
    is_state: bool = False


class VerbGroup(NamedTuple):
    """A verb in two places, between which "not", an adverb or the subject may come."""

    auxiliary: str
    main: str


BE = EnglishVerb("be", "is", "was", "being", is_state=True)


def english_verb(parts: str, *, is_state: bool) -> EnglishVerb:
    """Read "base/past/participle/third", of which only the base must be given."""
    base, past, participle, third, *_ = [*parts.split("/"), "", "", ""]
    return EnglishVerb(
        base,
        third or third_person(base),
        past or past_tense(base),
        participle or present_participle(base),
        is_state,
    )


def english_noun(parts: str) -> tuple[str, str]:
    """Read "singular/plural", of which only the singular must be given."""
    singular, _, plural = parts.partition("/")
    return singular, plural or third_person(singular)


def third_person(base: str) -> str:
    """Add -s by rule, to a verb or a noun: walks, watches, carries."""
    if base.endswith(("s", "x", "ch", "sh")):
        return base + "es"
    return base[:-1] + "ies" if _ends_in_consonant_and_y(base) else base + "s"


def past_tense(base: str) -> str:
    """Add -ed by rule: walked, praised, carried."""
    if base.endswith("e"):
        return base + "d"
    return base[:-1] + "ied" if _ends_in_consonant_and_y(base) else base + "ed"


def present_participle(base: str) -> str:
    """Add -ing by rule: walking, praising, freeing."""
    drops_e = base.endswith("e") and not base.endswith("ee")
    return (base[:-1] if drops_e else base) + "ing"


def _ends_in_consonant_and_y(base: str) -> bool:
    return base.endswith("y") and base[-2] not in "aeiou"


def statement_group(verb: EnglishVerb, tense: Tense, person: Person, number: Number) -> VerbGroup:
    """Say a verb in a plain statement: "walks", "was walking", "walked"."""
    if verb is BE:
        return VerbGroup(_be(tense, person, number), "")
    if tense is Tense.PRESENT:
        return VerbGroup("", verb.third if _is_third_singular(person, number) else verb.base)
    if tense is Tense.IMPERFECT and not verb.is_state:
        return VerbGroup(_be(tense, person, number), verb.participle)
    return VerbGroup("", verb.past)


def supported_group(verb: EnglishVerb, tense: Tense, person: Person, number: Number) -> VerbGroup:
    """Say a verb where a question or "not" wants an auxiliary: "does walk"."""
    plain = statement_group(verb, tense, person, number)
    if plain.auxiliary:
        return plain
    if tense is not Tense.PRESENT:
        return VerbGroup("did", verb.base)
    return VerbGroup("does" if _is_third_singular(person, number) else "do", verb.base)


def _is_third_singular(person: Person, number: Number) -> bool:
    return person is Person.THIRD and number is Number.SINGULAR


def _be(tense: Tense, person: Person, number: Number) -> str:
    is_past = tense is not Tense.PRESENT
    if number is Number.PLURAL or person is Person.SECOND:
        return "were" if is_past else "are"
    if is_past:
        return "was"
    return "am" if person is Person.FIRST else "is"


def with_a(words: str) -> str:
    """Put "a" or "an" before words."""
    return f"{'an' if words[0] in 'aeiou' else 'a'} {words}"
