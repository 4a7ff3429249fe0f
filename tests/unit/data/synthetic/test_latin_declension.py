"""Every declension, typed out as in a school grammar."""

import pytest

from heedful.data.synthetic.latin.morphology import Gender, decline, decline_adjective

# Order of the forms: nominative, accusative, genitive, dative, ablative, vocative; singular, then
# plural. "-i" is an i-stem.
NOUNS = """\
puella puellae f | puella puellam puellae puellae puella puella
    puellae puellas puellarum puellis puellis puellae
filia filiae f | filia filiam filiae filiae filia filia
    filiae filias filiarum filiabus filiabus filiae
nauta nautae m | nauta nautam nautae nautae nauta nauta
    nautae nautas nautarum nautis nautis nautae
servus servi m | servus servum servi servo servo serve
    servi servos servorum servis servis servi
filius filii m | filius filium filii filio filio fili
    filii filios filiorum filiis filiis filii
puer pueri m | puer puerum pueri puero puero puer
    pueri pueros puerorum pueris pueris pueri
ager agri m | ager agrum agri agro agro ager
    agri agros agrorum agris agris agri
vir viri m | vir virum viri viro viro vir
    viri viros virorum viris viris viri
bellum belli n | bellum bellum belli bello bello bellum
    bella bella bellorum bellis bellis bella
consilium consilii n | consilium consilium consilii consilio consilio consilium
    consilia consilia consiliorum consiliis consiliis consilia
rex regis m | rex regem regis regi rege rex
    reges reges regum regibus regibus reges
canis canis m | canis canem canis cani cane canis
    canes canes canum canibus canibus canes
flumen fluminis n | flumen flumen fluminis flumini flumine flumen
    flumina flumina fluminum fluminibus fluminibus flumina
litus litoris n | litus litus litoris litori litore litus
    litora litora litorum litoribus litoribus litora
exercitus exercitus m | exercitus exercitum exercitus exercitui exercitu exercitus
    exercitus exercitus exercituum exercitibus exercitibus exercitus
lacus lacus m | lacus lacum lacus lacui lacu lacus
    lacus lacus lacuum lacubus lacubus lacus
cornu cornus n | cornu cornu cornus cornu cornu cornu
    cornua cornua cornuum cornibus cornibus cornua
dies diei m | dies diem diei diei die dies
    dies dies dierum diebus diebus dies
res rei f | res rem rei rei re res
    res res rerum rebus rebus res
civis civis m-i | civis civem civis civi cive civis
    cives cives civium civibus civibus cives
urbs urbis f-i | urbs urbem urbis urbi urbe urbs
    urbes urbes urbium urbibus urbibus urbes
feles felis f-i | feles felem felis feli fele feles
    feles feles felium felibus felibus feles
mare maris n-i | mare mare maris mari mari mare
    maria maria marium maribus maribus maria
animal animalis n-i | animal animal animalis animali animali animal
    animalia animalia animalium animalibus animalibus animalia
"""

# Masculine, feminine, neuter.
ADJECTIVES = """\
bonus bona
    bonus bonum boni bono bono bone | boni bonos bonorum bonis bonis boni
    bona bonam bonae bonae bona bona | bonae bonas bonarum bonis bonis bonae
    bonum bonum boni bono bono bonum | bona bona bonorum bonis bonis bona
pulcher pulchra
    pulcher pulchrum pulchri pulchro pulchro pulcher
    pulchri pulchros pulchrorum pulchris pulchris pulchri
    pulchra pulchram pulchrae pulchrae pulchra pulchra
    pulchrae pulchras pulchrarum pulchris pulchris pulchrae
    pulchrum pulchrum pulchri pulchro pulchro pulchrum
    pulchra pulchra pulchrorum pulchris pulchris pulchra
miser misera
    miser miserum miseri misero misero miser | miseri miseros miserorum miseris miseris miseri
    misera miseram miserae miserae misera misera | miserae miseras miserarum miseris miseris miserae
    miserum miserum miseri misero misero miserum | misera misera miserorum miseris miseris misera
fortis fortis
    fortis fortem fortis forti forti fortis | fortes fortes fortium fortibus fortibus fortes
    fortis fortem fortis forti forti fortis | fortes fortes fortium fortibus fortibus fortes
    forte forte fortis forti forti forte | fortia fortia fortium fortibus fortibus fortia
acer acris
    acer acrem acris acri acri acer | acres acres acrium acribus acribus acres
    acris acrem acris acri acri acris | acres acres acrium acribus acribus acres
    acre acre acris acri acri acre | acria acria acrium acribus acribus acria
felix felicis
    felix felicem felicis felici felici felix | felices felices felicium felicibus felicibus felices
    felix felicem felicis felici felici felix | felices felices felicium felicibus felicibus felices
    felix felix felicis felici felici felix | felicia felicia felicium felicibus felicibus felicia
ingens ingentis
    ingens ingentem ingentis ingenti ingenti ingens
    ingentes ingentes ingentium ingentibus ingentibus ingentes
    ingens ingentem ingentis ingenti ingenti ingens
    ingentes ingentes ingentium ingentibus ingentibus ingentes
    ingens ingens ingentis ingenti ingenti ingens
    ingentia ingentia ingentium ingentibus ingentibus ingentia
"""


def entries(table):
    """Yield the first line of each entry, and all of its forms."""
    for entry in table.replace("\n    ", " | ").splitlines():
        name, *forms = entry.split(" | ")
        yield pytest.param(name.split(), forms, id=name)


@pytest.mark.parametrize(("entry", "forms"), [*entries(NOUNS)])
def test_noun_declensions_match_school_grammar(entry, forms):
    nominative, genitive, kind = entry
    gender = Gender("mfn".index(kind[0]))
    declined = decline(nominative, genitive, gender, i_stem=kind.endswith("-i"))
    assert [" ".join(row) for row in declined] == forms


@pytest.mark.parametrize(("entry", "forms"), [*entries(ADJECTIVES)])
def test_adjective_declensions_match_school_grammar(entry, forms):
    declined = decline_adjective(*entry)
    assert [" ".join(row) for rows in declined for row in rows] == forms
