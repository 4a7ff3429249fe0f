"""Every declension, typed out as in a school grammar."""

import pytest

from heedful.data.synthetic.latin.morphology import Gender, decline, decline_adjective

M, F, N = Gender.MASCULINE, Gender.FEMININE, Gender.NEUTER

# Order of the forms: nominative, accusative, genitive, dative, ablative, vocative.
NOUNS = {
    ("puella", "puellae", F): (
        "puella puellam puellae puellae puella puella",
        "puellae puellas puellarum puellis puellis puellae",
    ),
    ("filia", "filiae", F): (
        "filia filiam filiae filiae filia filia",
        "filiae filias filiarum filiabus filiabus filiae",
    ),
    ("nauta", "nautae", M): (
        "nauta nautam nautae nautae nauta nauta",
        "nautae nautas nautarum nautis nautis nautae",
    ),
    ("servus", "servi", M): (
        "servus servum servi servo servo serve",
        "servi servos servorum servis servis servi",
    ),
    ("filius", "filii", M): (
        "filius filium filii filio filio fili",
        "filii filios filiorum filiis filiis filii",
    ),
    ("puer", "pueri", M): (
        "puer puerum pueri puero puero puer",
        "pueri pueros puerorum pueris pueris pueri",
    ),
    ("ager", "agri", M): (
        "ager agrum agri agro agro ager",
        "agri agros agrorum agris agris agri",
    ),
    ("vir", "viri", M): (
        "vir virum viri viro viro vir",
        "viri viros virorum viris viris viri",
    ),
    ("bellum", "belli", N): (
        "bellum bellum belli bello bello bellum",
        "bella bella bellorum bellis bellis bella",
    ),
    ("consilium", "consilii", N): (
        "consilium consilium consilii consilio consilio consilium",
        "consilia consilia consiliorum consiliis consiliis consilia",
    ),
    ("rex", "regis", M): (
        "rex regem regis regi rege rex",
        "reges reges regum regibus regibus reges",
    ),
    ("canis", "canis", M): (
        "canis canem canis cani cane canis",
        "canes canes canum canibus canibus canes",
    ),
    ("flumen", "fluminis", N): (
        "flumen flumen fluminis flumini flumine flumen",
        "flumina flumina fluminum fluminibus fluminibus flumina",
    ),
    ("litus", "litoris", N): (
        "litus litus litoris litori litore litus",
        "litora litora litorum litoribus litoribus litora",
    ),
    ("exercitus", "exercitus", M): (
        "exercitus exercitum exercitus exercitui exercitu exercitus",
        "exercitus exercitus exercituum exercitibus exercitibus exercitus",
    ),
    ("lacus", "lacus", M): (
        "lacus lacum lacus lacui lacu lacus",
        "lacus lacus lacuum lacubus lacubus lacus",
    ),
    ("cornu", "cornus", N): (
        "cornu cornu cornus cornu cornu cornu",
        "cornua cornua cornuum cornibus cornibus cornua",
    ),
    ("dies", "diei", M): (
        "dies diem diei diei die dies",
        "dies dies dierum diebus diebus dies",
    ),
    ("res", "rei", F): (
        "res rem rei rei re res",
        "res res rerum rebus rebus res",
    ),
}

I_STEMS = {
    ("civis", "civis", M): (
        "civis civem civis civi cive civis",
        "cives cives civium civibus civibus cives",
    ),
    ("urbs", "urbis", F): (
        "urbs urbem urbis urbi urbe urbs",
        "urbes urbes urbium urbibus urbibus urbes",
    ),
    ("feles", "felis", F): (
        "feles felem felis feli fele feles",
        "feles feles felium felibus felibus feles",
    ),
    ("mare", "maris", N): (
        "mare mare maris mari mari mare",
        "maria maria marium maribus maribus maria",
    ),
    ("animal", "animalis", N): (
        "animal animal animalis animali animali animal",
        "animalia animalia animalium animalibus animalibus animalia",
    ),
}

# Masculine, feminine, neuter; singular, then plural.
ADJECTIVES = {
    ("bonus", "bona"): (
        "bonus bonum boni bono bono bone | boni bonos bonorum bonis bonis boni",
        "bona bonam bonae bonae bona bona | bonae bonas bonarum bonis bonis bonae",
        "bonum bonum boni bono bono bonum | bona bona bonorum bonis bonis bona",
    ),
    ("pulcher", "pulchra"): (
        "pulcher pulchrum pulchri pulchro pulchro pulcher"
        " | pulchri pulchros pulchrorum pulchris pulchris pulchri",
        "pulchra pulchram pulchrae pulchrae pulchra pulchra"
        " | pulchrae pulchras pulchrarum pulchris pulchris pulchrae",
        "pulchrum pulchrum pulchri pulchro pulchro pulchrum"
        " | pulchra pulchra pulchrorum pulchris pulchris pulchra",
    ),
    ("miser", "misera"): (
        "miser miserum miseri misero misero miser"
        " | miseri miseros miserorum miseris miseris miseri",
        "misera miseram miserae miserae misera misera"
        " | miserae miseras miserarum miseris miseris miserae",
        "miserum miserum miseri misero misero miserum"
        " | misera misera miserorum miseris miseris misera",
    ),
    ("fortis", "fortis"): (
        "fortis fortem fortis forti forti fortis | fortes fortes fortium fortibus fortibus fortes",
        "fortis fortem fortis forti forti fortis | fortes fortes fortium fortibus fortibus fortes",
        "forte forte fortis forti forti forte | fortia fortia fortium fortibus fortibus fortia",
    ),
    ("acer", "acris"): (
        "acer acrem acris acri acri acer | acres acres acrium acribus acribus acres",
        "acris acrem acris acri acri acris | acres acres acrium acribus acribus acres",
        "acre acre acris acri acri acre | acria acria acrium acribus acribus acria",
    ),
    ("felix", "felicis"): (
        "felix felicem felicis felici felici felix"
        " | felices felices felicium felicibus felicibus felices",
        "felix felicem felicis felici felici felix"
        " | felices felices felicium felicibus felicibus felices",
        "felix felix felicis felici felici felix"
        " | felicia felicia felicium felicibus felicibus felicia",
    ),
    ("ingens", "ingentis"): (
        "ingens ingentem ingentis ingenti ingenti ingens"
        " | ingentes ingentes ingentium ingentibus ingentibus ingentes",
        "ingens ingentem ingentis ingenti ingenti ingens"
        " | ingentes ingentes ingentium ingentibus ingentibus ingentes",
        "ingens ingens ingentis ingenti ingenti ingens"
        " | ingentia ingentia ingentium ingentibus ingentibus ingentia",
    ),
}


@pytest.mark.parametrize("entry", NOUNS, ids=lambda entry: entry[0])
def test_noun_declensions_match_school_grammar(entry):
    singular, plural = decline(*entry)
    assert (" ".join(singular), " ".join(plural)) == NOUNS[entry]


@pytest.mark.parametrize("entry", I_STEMS, ids=lambda entry: entry[0])
def test_i_stem_declensions_match_school_grammar(entry):
    singular, plural = decline(*entry, i_stem=True)
    assert (" ".join(singular), " ".join(plural)) == I_STEMS[entry]


@pytest.mark.parametrize("entry", ADJECTIVES, ids=lambda entry: entry[0])
def test_adjective_declensions_match_school_grammar(entry):
    declined = decline_adjective(*entry)
    spelled = tuple(f"{' '.join(singular)} | {' '.join(plural)}" for singular, plural in declined)
    assert spelled == ADJECTIVES[entry]
