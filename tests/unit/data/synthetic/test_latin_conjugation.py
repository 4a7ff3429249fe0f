"""Every conjugation, typed out as in a school grammar."""

import pytest

from heedful.data.synthetic.latin.morphology import ESSE, Conjugation, conjugate

# Present, imperfect, perfect: I, you, he; we, you, they. Then the imperatives.
VERBS = {
    ("amo", "amare", "amavi"): (
        "amo amas amat amamus amatis amant",
        "amabam amabas amabat amabamus amabatis amabant",
        "amavi amavisti amavit amavimus amavistis amaverunt",
        "ama amate",
    ),
    ("do", "dare", "dedi"): (
        "do das dat damus datis dant",
        "dabam dabas dabat dabamus dabatis dabant",
        "dedi dedisti dedit dedimus dedistis dederunt",
        "da date",
    ),
    ("video", "videre", "vidi"): (
        "video vides videt videmus videtis vident",
        "videbam videbas videbat videbamus videbatis videbant",
        "vidi vidisti vidit vidimus vidistis viderunt",
        "vide videte",
    ),
    ("mitto", "mittere", "misi"): (
        "mitto mittis mittit mittimus mittitis mittunt",
        "mittebam mittebas mittebat mittebamus mittebatis mittebant",
        "misi misisti misit misimus misistis miserunt",
        "mitte mittite",
    ),
    ("capio", "capere", "cepi"): (
        "capio capis capit capimus capitis capiunt",
        "capiebam capiebas capiebat capiebamus capiebatis capiebant",
        "cepi cepisti cepit cepimus cepistis ceperunt",
        "cape capite",
    ),
    ("audio", "audire", "audivi"): (
        "audio audis audit audimus auditis audiunt",
        "audiebam audiebas audiebat audiebamus audiebatis audiebant",
        "audivi audivisti audivit audivimus audivistis audiverunt",
        "audi audite",
    ),
}

TO_BE = (
    "sum es est sumus estis sunt",
    "eram eras erat eramus eratis erant",
    "fui fuisti fuit fuimus fuistis fuerunt",
    "es este",
)


def spelled(conjugated: Conjugation) -> tuple[str, ...]:
    tenses = [" ".join((*singular, *plural)) for singular, plural in conjugated.finite]
    return (*tenses, " ".join(conjugated.imperatives))


@pytest.mark.parametrize("parts", VERBS, ids=lambda parts: parts[0])
def test_conjugations_match_school_grammar(parts):
    assert spelled(conjugate(*parts)) == VERBS[parts]


def test_esse_same_as_school_grammar():
    assert spelled(ESSE) == TO_BE


@pytest.mark.parametrize(
    ("parts", "imperatives"),
    [
        (("dico", "dicere", "dixi"), ("dic", "dicite")),
        (("duco", "ducere", "duxi"), ("duc", "ducite")),
        (("facio", "facere", "feci"), ("fac", "facite")),
    ],
)
def test_short_imperatives(parts, imperatives):
    assert conjugate(*parts).imperatives == imperatives
