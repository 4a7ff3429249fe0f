"""Declension: what are the forms of a noun or adjective?

A noun's declension follows from its genitive, as in a dictionary: -ae, -i, -is, -us, -ei. Long
vowels are not written, so forms that differ only in length come out alike.
"""

from __future__ import annotations

from heedful.data.synthetic.latin.terms import Declined, Gender

# Each row: nominative, accusative, genitive, dative, ablative, vocative; "-" is the dictionary
# nominative, which does not follow from the stem.
_Endings = tuple[str, str]
_FIRST: _Endings = ("a am ae ae a a", "ae as arum is is ae")
_SECOND: _Endings = ("- um i o o -", "i os orum is is i")
_SECOND_NEUTER: _Endings = ("um um i o o um", "a a orum is is a")
_THIRD: _Endings = ("- em is i e -", "es es um ibus ibus es")
_THIRD_I: _Endings = ("- em is i e -", "es es ium ibus ibus es")
_THIRD_NEUTER: _Endings = ("- - is i e -", "a a um ibus ibus a")
_THIRD_NEUTER_I: _Endings = ("- - is i i -", "ia ia ium ibus ibus ia")
_FOURTH: _Endings = ("us um us ui u us", "us us uum ibus ibus us")
_FOURTH_NEUTER: _Endings = ("u u us u u u", "ua ua uum ibus ibus ua")
_FIFTH: _Endings = ("es em ei ei e es", "es es erum ebus ebus es")
_THIRD_ADJECTIVE: _Endings = ("- em is i i -", "es es ium ibus ibus es")

_UNALIKE_DATIVE_PLURALS = {"filia": "filiabus", "lacus": "lacubus"}


def decline(nominative: str, genitive: str, gender: Gender, *, i_stem: bool = False) -> Declined:
    """Give the forms of a noun from its dictionary entry.

    `i_stem` marks third declension nouns with -ium in the genitive plural.
    """
    if nominative.endswith("es") and genitive.endswith("ei"):
        return _attach(_FIFTH, genitive[:-2], nominative)
    stem, endings = _stem_and_endings(genitive, is_neuter=gender is Gender.NEUTER, i_stem=i_stem)
    singular, plural = _attach(endings, stem, nominative)
    if endings is _SECOND:
        singular = (*singular[:5], _second_vocative(nominative, stem))
    if nominative in _UNALIKE_DATIVE_PLURALS:
        dative = _UNALIKE_DATIVE_PLURALS[nominative]
        plural = (*plural[:3], dative, dative, plural[5])
    return singular, plural


def _stem_and_endings(genitive: str, *, is_neuter: bool, i_stem: bool) -> tuple[str, _Endings]:
    if genitive.endswith("ae"):
        return genitive[:-2], _FIRST
    if (genitive.endswith("ei") and len(genitive) <= 4) or genitive.endswith("iei"):
        return genitive[:-2], _FIFTH
    if genitive.endswith("i"):
        return genitive[:-1], _SECOND_NEUTER if is_neuter else _SECOND
    if genitive.endswith("us"):
        return genitive[:-2], _FOURTH_NEUTER if is_neuter else _FOURTH
    assert genitive.endswith("is"), f"not a genitive singular: {genitive!r}"
    if is_neuter:
        return genitive[:-2], _THIRD_NEUTER_I if i_stem else _THIRD_NEUTER
    return genitive[:-2], _THIRD_I if i_stem else _THIRD


def _second_vocative(nominative: str, stem: str) -> str:
    if nominative.endswith("ius"):
        return stem  # fili, Caecili
    return stem + "e" if nominative.endswith("us") else nominative


def _attach(endings: _Endings, stem: str, nominative: str) -> Declined:
    singular, plural = (
        tuple(nominative if ending == "-" else stem + ending for ending in row.split())
        for row in endings
    )
    return singular, plural


def decline_adjective(masculine: str, feminine: str) -> tuple[Declined, Declined, Declined]:
    """Give the forms of an adjective in its three genders.

    `feminine` is the second dictionary form: bona, pulchra, acris, fortis; adjectives with one
    nominative for all genders give their genitive there, as in a dictionary: felicis.
    """
    if feminine.endswith("a"):
        stem = feminine[:-1]
        return (
            decline(masculine, stem + "i", Gender.MASCULINE),
            decline(feminine, stem + "ae", Gender.FEMININE),
            decline(stem + "um", stem + "i", Gender.NEUTER),
        )
    stem = feminine[:-2]
    is_one_form = masculine[-1] in "xs" and masculine != feminine
    neuter_nominative = masculine if is_one_form else stem + "e"
    feminine_nominative = masculine if is_one_form else feminine
    return (
        _attach(_THIRD_ADJECTIVE, stem, masculine),
        _attach(_THIRD_ADJECTIVE, stem, feminine_nominative),
        _attach(_THIRD_NEUTER_I, stem, neuter_nominative),
    )
