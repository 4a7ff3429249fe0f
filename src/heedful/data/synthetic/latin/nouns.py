"""Nouns: the lexicon's substantives, by what kind of thing they name.

Each row: nominative, genitive, gender, English, then what else is so of it.
    m-i         third declension with -ium in the genitive plural
    man/men     an English plural that does not follow the rule
    one         used in the singular only
    owned       may have an owner: "the friend of the girl"
    in, on      what English says for `in` with this place
    through, across, front, under       takes per; trans; ante and post; sub
    water       one can swim and sail there
"""

from __future__ import annotations

PERSONS = """
puella      puellae       f    girl
femina      feminae       f    woman/women
regina      reginae       f    queen
ancilla     ancillae      f    maid            owned
filia       filiae        f    daughter        owned
matrona     matronae      f    lady
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
discipulus  discipuli     m    pupil           owned
maritus     mariti        m    husband         owned
captivus    captivi       m    prisoner
coquus      coqui         m    cook            owned
socius      socii         m    ally            owned
tribunus    tribuni       m    tribune
puer        pueri         m    boy
vir         viri          m    man/men
magister    magistri      m    teacher         owned
faber       fabri         m    smith
rex         regis         m    king
pater       patris        m    father          owned
mater       matris        f    mother          owned
frater      fratris       m    brother         owned
soror       sororis       f    sister          owned
uxor        uxoris        f    wife/wives      owned
virgo       virginis      f    maiden
miles       militis       m    soldier
eques       equitis       m    horseman/horsemen
comes       comitis       m    companion       owned
hospes      hospitis      m    guest           owned
custos      custodis      m    guard           owned
imperator   imperatoris   m    general
mercator    mercatoris    m    merchant
senator     senatoris     m    senator
gladiator   gladiatoris   m    gladiator
consul      consulis      m    consul
princeps    principis     m    chief
pastor      pastoris      m    shepherd
iudex       iudicis       m    judge
sacerdos    sacerdotis    m    priest
latro       latronis      m    robber
fur         furis         m    thief/thieves
civis       civis         m-i  citizen
hostis      hostis        m-i  enemy
"""

ANIMALS = """
capra       caprae        f    goat            owned
vacca       vaccae        f    cow             owned
aquila      aquilae       f    eagle
columba     columbae      f    dove            owned
equus       equi          m    horse           owned
lupus       lupi          m    wolf/wolves
taurus      tauri         m    bull            owned
asinus      asini         m    donkey          owned
porcus      porci         m    pig             owned
cervus      cervi         m    stag
aper        apri          m    boar
canis       canis         m    dog             owned
leo         leonis        m    lion
lepus       leporis       m    hare
anser       anseris       m    goose/geese     owned
avis        avis          f-i  bird            owned
feles       felis         f-i  cat             owned
serpens     serpentis     f-i  snake
animal      animalis      n-i  animal          owned
"""

THINGS = """
rosa        rosae         f    rose            owned
corona      coronae       f    crown           owned
lucerna     lucernae      f    lamp            owned
toga        togae         f    toga            owned
hasta       hastae        f    spear           owned
sagitta     sagittae      f    arrow           owned
gemma       gemmae        f    jewel           owned
catena      catenae       f    chain           owned
pila        pilae         f    ball            owned
statua      statuae       f    statue          owned
pecunia     pecuniae      f    money           owned one
gladius     gladii        m    sword           owned
anulus      anuli         m    ring            owned
saccus      sacci         m    sack            owned
scutum      scuti         n    shield          owned
donum       doni          n    gift            owned
poculum     poculi        n    cup             owned
telum       teli          n    weapon          owned
speculum    speculi       n    mirror          owned
baculum     baculi        n    stick           owned
aurum       auri          n    gold            owned one
flos        floris        m    flower          owned
lapis       lapidis       m    stone           owned
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
caseus      casei         m    cheese          owned one
vinum       vini          n    wine            owned one
pomum       pomi          n    apple           owned
ovum        ovi           n    egg             owned
panis       panis         m    bread           owned one
mel         mellis        n    honey           owned one
"""

WORDS = """
fabula      fabulae       f    story           owned
epistula    epistulae     f    letter          owned
liber       libri         m    book            owned
verbum      verbi         n    word            owned
consilium   consilii      n    plan            owned
carmen      carminis      n    song            owned
nomen       nominis       n    name            owned
"""

SIGHTS = """
stella      stellae       f    star
luna        lunae         f    moon            one
bellum      belli         n    war
ignis       ignis         m-i  fire
classis     classis       f-i  fleet
legio       legionis      f    legion
exercitus   exercitus     m    army            owned
manus       manus         f    hand            owned
acies       aciei         f    battle-line     one
dies        diei          m    day
"""

LANDSCAPES = """
via         viae          f    street          in through across
silva       silvae        f    forest          in through
insula      insulae       f    island          on
ripa        ripae         f    bank            on
spelunca    speluncae     f    cave            in front
hortus      horti         m    garden          in through owned
campus      campi         m    plain           on across
rivus       rivi          m    stream          in across water
ager        agri          m    field           in across owned
mons        montis        m-i  mountain        on across
collis      collis        m-i  hill            on across
vallis      vallis        f-i  valley          in through
arbor       arboris       f    tree            in under front
flumen      fluminis      n    river           in across water
litus       litoris       n    shore           on
mare        maris         n-i  sea             in across water one
lacus       lacus         m    lake            in across water
"""

BUILDINGS = """
villa       villae        f    villa           in front owned
taberna     tabernae      f    tavern          in front owned
schola      scholae       f    school          in front owned
ianua       ianuae        f    door            front
murus       muri          m    wall            on front
vicus       vici          m    village         in through
oppidum     oppidi        n    town            in through
templum     templi        n    temple          in front
theatrum    theatri       n    theatre         in front
palatium    palatii       n    palace          in front owned
stabulum    stabuli       n    stable          in front owned
atrium      atrii         n    hall            in through owned
forum       fori          n    forum           in through across
urbs        urbis         f-i  city            in through
pons        pontis        m-i  bridge          on across under
carcer      carceris      m    prison          in front
navis       navis         f-i  ship            on owned
portus      portus        m    harbour         in water
porticus    porticus      f    colonnade       in through
"""

FURNITURE = """
mensa       mensae        f    table           on under owned
sella       sellae        f    chair           on owned
cista       cistae        f    chest           in owned
lectus      lecti         m    bed             on under owned
"""

# The letter by which verbs, adjectives and prepositions name a kind.
KINDS = {
    "p": PERSONS,
    "a": ANIMALS,
    "t": THINGS,
    "f": FOODS,
    "w": WORDS,
    "s": SIGHTS,
    "l": LANDSCAPES,
    "b": BUILDINGS,
    "u": FURNITURE,
}
