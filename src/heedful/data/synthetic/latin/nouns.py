"""Nouns: the lexicon's substantives, by what kind of thing they name.

Each row: nominative, genitive, gender, English, then what else is so of it.
    m-i             third declension with -ium in the genitive plural
    man/men         an English plural that does not follow the rule
    one             used in the singular only
    owned           may have an owner: "the friend of the girl"
    in, on          what English says for `in` with this place
    through, across, front, under    takes per; trans; ante and post; sub
    water, coast    one can swim and sail there; one can sail to it
"""

from __future__ import annotations

PERSONS = """
puella      puellae       f    girl
femina      feminae       f    woman/women
regina      reginae       f    queen
ancilla     ancillae      f    maid            owned
filia       filiae        f    daughter        owned
nauta       nautae        m    sailor
agricola    agricolae     m    farmer
poeta       poetae        m    poet
pirata      piratae       m    pirate
servus      servi         m    slave           owned
dominus     domini        m    master          owned
amicus      amici         m    friend          owned
filius      filii         m    son             owned
medicus     medici        m    doctor          owned
nuntius     nuntii        m    messenger       owned
maritus     mariti        m    husband         owned
coquus      coqui         m    cook            owned
puer        pueri         m    boy
vir         viri          m    man/men
magister    magistri      m    teacher         owned
rex         regis         m    king
pater       patris        m    father          owned
mater       matris        f    mother          owned
frater      fratris       m    brother         owned
soror       sororis       f    sister          owned
uxor        uxoris        f    wife/wives      owned
miles       militis       m    soldier
hospes      hospitis      m    guest           owned
custos      custodis      m    guard           owned
imperator   imperatoris   m    general
mercator    mercatoris    m    merchant
senator     senatoris     m    senator
consul      consulis      m    consul
pastor      pastoris      m    shepherd
fur         furis         m    thief/thieves
civis       civis         m-i  citizen
hostis      hostis        m-i  enemy
"""

ANIMALS = """
capra       caprae        f    goat            owned
vacca       vaccae        f    cow             owned
aquila      aquilae       f    eagle
equus       equi          m    horse           owned
lupus       lupi          m    wolf/wolves
taurus      tauri         m    bull            owned
porcus      porci         m    pig             owned
aper        apri          m    boar
canis       canis         m    dog             owned
leo         leonis        m    lion
lepus       leporis       m    hare
avis        avis          f-i  bird            owned
feles       felis         f-i  cat             owned
serpens     serpentis     f-i  snake
animal      animalis      n-i  animal          owned
"""

THINGS = """
rosa        rosae         f    rose            owned
corona      coronae       f    crown           owned
toga        togae         f    toga            owned
hasta       hastae        f    spear           owned
sagitta     sagittae      f    arrow           owned
statua      statuae       f    statue          owned
pecunia     pecuniae      f    money           owned one
gladius     gladii        m    sword           owned
anulus      anuli         m    ring            owned
scutum      scuti         n    shield          owned
donum       doni          n    gift            owned
poculum     poculi        n    cup             owned
telum       teli          n    weapon          owned
aurum       auri          n    gold            owned one
flos        floris        m    flower          owned
clavis      clavis        f-i  key             owned
currus      currus        m    chariot         owned
cornu       cornus        n    horn            owned
effigies    effigiei      f    likeness        owned one
res         rei           f    thing           owned
"""

FOODS = """
aqua        aquae         f    water           owned one
uva         uvae          f    grape           owned
cibus       cibi          m    food            owned one
vinum       vini          n    wine            owned one
pomum       pomi          n    apple           owned
ovum        ovi           n    egg             owned
panis       panis         m    bread           owned one
mel         mellis        n    honey           owned one
"""

WORDS = """
fabula      fabulae       f    story           owned
verbum      verbi         n    word            owned
consilium   consilii      n    plan            owned
carmen      carminis      n    song            owned
nomen       nominis       n    name            owned
"""

WRITINGS = """
epistula    epistulae     f    letter          owned
liber       libri         m    book            owned
"""

SIGHTS = """
stella      stellae       f    star
luna        lunae         f    moon            one
bellum      belli         n    war
ignis       ignis         m-i  fire
legio       legionis      f    legion
exercitus   exercitus     m    army            owned
manus       manus         f    hand            owned
acies       aciei         f    battle-line     one
dies        diei          m    day
"""

LANDSCAPES = """
via         viae          f    street          in through across
silva       silvae        f    forest          in through
insula      insulae       f    island          on coast
hortus      horti         m    garden          in through owned
campus      campi         m    plain           on across
rivus       rivi          m    stream          in across water
ager        agri          m    field           in across owned
mons        montis        m-i  mountain        on across under
collis      collis        m-i  hill            on across
vallis      vallis        f-i  valley          in through
arbor       arboris       f    tree            in under front
flumen      fluminis      n    river           in across water
litus       litoris       n    shore           on coast
mare        maris         n-i  sea             in across water one
lacus       lacus         m    lake            in across water
"""

BUILDINGS = """
villa       villae        f    villa           in front owned
taberna     tabernae      f    tavern          in front owned
schola      scholae       f    school          in front owned
ianua       ianuae        f    door            front
murus       muri          m    wall            on front
oppidum     oppidi        n    town            in through
templum     templi        n    temple          in front
theatrum    theatri       n    theatre         in front
palatium    palatii       n    palace          in front owned
atrium      atrii         n    hall            in through owned
forum       fori          n    forum           in through across
urbs        urbis         f-i  city            in through
pons        pontis        m-i  bridge          on across under
carcer      carceris      m    prison          in front
navis       navis         f-i  ship            on owned
portus      portus        m    harbour         in water coast
"""

FURNITURE = """
mensa       mensae        f    table           on under owned
sella       sellae        f    chair           on owned
cista       cistae        f    chest           in owned
lectus      lecti         m    bed             on owned
"""

# The letter by which verbs, adjectives and prepositions name a kind.
KINDS = {
    "p": PERSONS,
    "a": ANIMALS,
    "t": THINGS,
    "f": FOODS,
    "w": WORDS,
    "r": WRITINGS,
    "s": SIGHTS,
    "l": LANDSCAPES,
    "b": BUILDINGS,
    "u": FURNITURE,
}
