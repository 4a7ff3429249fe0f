"""Adjectives: what nouns are like.

Each row: masculine, feminine (or the genitive, where one nominative serves all genders),
English, and the kinds of noun it is said of, by the letters of `nouns.NOUN_CATEGORIES`.
"""

from __future__ import annotations

ADJECTIVES = """
bonus       bona          good        patfwrslbu
malus       mala          bad         patfwrslbu
magnus      magna         large       atlbu
parvus      parva         small       patlbu
novus       nova          new         twrbu
antiquus    antiqua       ancient     tlb
longus      longa         long        wr
altus       alta          high        lb
pretiosus   pretiosa      precious    tu
albus       alba          white       at
laetus      laeta         happy       p
iratus      irata         angry       pa
fessus      fessa         tired       pa
benignus    benigna       kind        p
superbus    superba       proud       p
stultus     stulta        foolish     pa
clarus      clara         famous      pwrb
validus     valida        strong      pa
pulcher     pulchra       beautiful   patwrslbu
niger       nigra         black       at
aeger       aegra         sick        pa
piger       pigra         lazy        pa
sacer       sacra         sacred      lb
miser       misera        wretched    pa
fortis      fortis        brave       pa
tristis     tristis       sad         pwr
crudelis    crudelis      cruel       p
fidelis     fidelis       loyal       pa
gravis      gravis        heavy       tu
levis       levis         light       t
utilis      utilis        useful      tru
brevis      brevis        short       wr
dulcis      dulcis        sweet       f
celer       celeris       swift       a
acer        acris         keen        pa
felix       felicis       lucky       p
audax       audacis       bold        pa
ferox       ferocis       fierce      a
ingens      ingentis      huge        atlbu
sapiens     sapientis     wise        p
"""

# Said of many, always before the noun; English puts them in the place of "the".
QUANTIFIERS = """
multus      multa         many        patrlbu
omnis       omnis         all_the     patrlbu
"""


# Names: the proper names, and those kept back from training.
#
# A name is the same in English, whatever case it had in Latin: Caecilium is "Caecilius".

FAMILIAR = """
Caecilius   Caecilii      m
Marcus      Marci         m
Quintus     Quinti        m
Lucius      Lucii         m
Publius     Publii        m
Titus       Titi          m
Sextus      Sexti         m
Decimus     Decimi        m
Aulus       Auli          m
Claudius    Claudii       m
Cornelius   Cornelii      m
Antonius    Antonii       m
Cassius     Cassii        m
Valerius    Valerii       m
Horatius    Horatii       m
Seneca      Senecae       m
Sulla       Sullae        m
Catilina    Catilinae     m
Caesar      Caesaris      m
Cicero      Ciceronis     m
Cato        Catonis       m
Scipio      Scipionis     m
Hannibal    Hannibalis    m
Clemens     Clementis     m
Metella     Metellae      f
Claudia     Claudiae      f
Cornelia    Corneliae     f
Lucretia    Lucretiae     f
Livia       Liviae        f
Melissa     Melissae      f
Flavia      Flaviae       f
Camilla     Camillae      f
Fulvia      Fulviae       f
Diana       Dianae        f
Venus       Veneris       f
Ceres       Cereris       f
"""

RESERVED = """
Octavius    Octavii       m
Vergilius   Vergilii      m
Fabius      Fabii         m
Brutus      Bruti         m
Agrippa     Agrippae      m
Varro       Varronis      m
Drusilla    Drusillae     f
Lavinia     Laviniae      f
Helena      Helenae       f
Minerva     Minervae      f
"""


# Nouns: the lexicon's substantives, by what kind of thing they name.
#
# Each row: nominative, genitive, gender, English, then what else is so of it.
#     m-i             third declension with -ium in the genitive plural
#     man/men         an English plural that does not follow the rule
#     one             used in the singular only
#     owned           may have an owner: "the friend of the girl"
#     in, on          what English says for `in` with this place
#     through, across, front, under    takes per; trans; ante and post; sub
#     water, coast    one can swim and sail there; one can sail to it

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
NOUN_CATEGORIES = {
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


# Particles: the words that do not decline, and the pronouns.
#
# Prepositions: Latin, case, English, the kinds they go with (letters of `nouns.NOUN_CATEGORIES`), the tag a
# place must carry (or - for any), and of what it is said: rest, company, motion, being in water.
# "@" stands for what English says with the place: in the garden, on the island. What stands twice
# is drawn twice as often.

PREPOSITIONS = """
in      ablative    @               lbu   place     rest
in      ablative    @               lb    place     rest
in      ablative    @               lb    place     rest
sub     ablative    under           lbu   under     rest
prope   accusative  near            plbu  -         rest
ante    accusative  in_front_of     lb    front     rest
post    accusative  behind          lb    front     rest
cum     ablative    with            pa    -         company
sine    ablative    without         p     -         company
in      accusative  @to             lb    place     motion
in      accusative  @to             lb    place     motion
ad      accusative  to              plb   -         motion
ad      accusative  to              lb    -         motion
ex      ablative    out_of          lb    in        motion
per     accusative  through         lb    through   motion
trans   accusative  across          lb    across    motion
in      ablative    @               lb    water     water
trans   accusative  across          l     water     water
ad      accusative  to              lb    coast     water
cum     ablative    with            p     -         water
"""

# Latin, English, where English puts it, and the tenses it suits.
ADVERBS = """
semper      always            middle  any
saepe       often             middle  any
interdum    sometimes         middle  any
numquam     never             middle  any
hodie       today             end     any
cotidie     every_day         end     any
nunc        now               end     present
heri        yesterday         end     past
diu         for_a_long_time   end     any
"""

# The same, of deeds only: one cannot be or love quickly.
MANNERS = """
celeriter   quickly           end     any
lente       slowly            end     any
iterum      again             end     any
statim      at_once           end     any
subito      suddenly          middle  any
tandem      finally           middle  any
"""

# Nominative, accusative, dative; English as subject and as object.
PRONOUNS = """
ego  me   mihi   I    me
tu   te   tibi   you  you
nos  nos  nobis  we   us
vos  vos  vobis  you  you
"""


# Verbs: what is done, by what it takes beside a subject.
#
# Each row: present, infinitive, perfect, English, the kinds of subject and of object (letters of
# `nouns.NOUN_CATEGORIES`, or - for none), and where it may happen.
#     run/ran/running/runs    English forms that do not follow the rule
#     rest, motion, water     the prepositions it takes; - for none
#
# A verb with two forms written alike in present and perfect (venit, legit, bibit) has no place
# here: its sentences would have two translations.

INTRANSITIVE = """
ambulo      ambulare      ambulavi      walk                   pa     -          motion
curro       currere       cucurri       run/ran/running        pa     -          motion
propero     properare     properavi     hurry                  p      -          motion
salio       salire        salui         jump                   pa     -          motion
nato        natare        natavi        swim/swam/swimming     pa     -          water
navigo      navigare      navigavi      sail                   p      -          water
laboro      laborare      laboravi      work                   p      -          rest
dormio      dormire       dormivi       sleep/slept            pa     -          rest
clamo       clamare       clamavi       shout                  p      -          rest
rideo       ridere        risi          laugh                  p      -          rest
lacrimo     lacrimare     lacrimavi     weep/wept              p      -          rest
canto       cantare       cantavi       sing/sang              p      -          rest
salto       saltare       saltavi       dance                  p      -          rest
sedeo       sedere        sedi          sit/sat/sitting        pa     -          rest
sto         stare         steti         stand/stood            pa     -          rest
iaceo       iacere        iacui         lie/lay/lying          patfr  -          rest
pugno       pugnare       pugnavi       fight/fought           pa     -          rest
ludo        ludere        lusi          play                   pa     -          rest
vivo        vivere        vixi          live                   p      -          rest
cado        cadere        cecidi        fall/fell              pat    -          rest
maneo       manere        mansi         stay                   pa     -          rest
"""

TRANSITIVE = """
video       videre        vidi          see/saw                pa     patfrslbu  rest
specto      spectare      spectavi      watch                  pa     pas        rest
audio       audire        audivi        hear/heard             pa     paw        rest
amo         amare         amavi         love                   p      pa         -
laudo       laudare       laudavi       praise                 p      pwr        rest
saluto      salutare      salutavi      greet                  p      p          rest
voco        vocare        vocavi        call                   p      pa         rest
exspecto    exspectare    exspectavi    await                  p      ps         rest
timeo       timere        timui         fear                   pa     pas        -
terreo      terrere       terrui        frighten               pas    pa         rest
moneo       monere        monui         warn                   p      p          rest
doceo       docere        docui         teach/taught           p      p          rest
iuvo        iuvare        iuvi          help                   p      p          rest
punio       punire        punivi        punish                 p      p          rest
vinco       vincere       vici          defeat                 p      pa         rest
capio       capere        cepi          capture                p      pab        rest
duco        ducere        duxi          lead/led               p      pa         motion
neco        necare        necavi        kill                   pa     pa         rest
delecto     delectare     delectavi     delight                patwr  p          -
libero      liberare      liberavi      free                   p      pa         -
oppugno     oppugnare     oppugnavi     attack                 p      pb         -
visito      visitare      visitavi      visit                  p      plb        -
quaero      quaerere      quaesivi      seek/sought            p      patfr      rest
relinquo    relinquere    reliqui       abandon                p      ptrlb      -
decipio     decipere      decepi        deceive                p      p          -
conspicio   conspicere    conspexi      notice                 pa     patrslbu   rest
porto       portare       portavi       carry                  p      tfaru      motion
teneo       tenere        tenui         hold/held              p      tar        rest
habeo       habere        habui         have/had/having/has    p      tfaru      -
vendo       vendere       vendidi       sell/sold              p      tfabru     rest
scribo      scribere      scripsi       write/wrote            p      wr         rest
reperio     reperire      repperi       find/found             p      patfr      rest
traho       trahere       traxi         drag/dragged/dragging  pa     tpu        motion
frango      frangere      fregi         break/broke            p      tu         rest
paro        parare        paravi        prepare                p      f          rest
aedifico    aedificare    aedificavi    build/built            p      b          rest
rapio       rapere        rapui         seize                  p      tf         rest
cupio       cupere        cupivi        desire                 p      tf         -
accipio     accipere      accepi        receive                p      tfr        rest
facio       facere        feci          make/made              p      tfu        rest
"""

# With an object and a recipient in the dative.
GIVING = """
do          dare          dedi          give/gave              p      tfar       rest
mitto       mittere       misi          send/sent              p      tfar       -
monstro     monstrare     monstravi     show                   p      tarlb      -
narro       narrare       narravi       tell/told              p      w          rest
reddo       reddere       reddidi       return                 p      tfar       -
praebeo     praebere      praebui       offer                  p      tf         rest
commodo     commodare     commodavi     lend/lent              p      taru       -
"""

# With a dative where English has an object.
DATIVE_VERBS = """
credo       credere       credidi       trust                  p      p          -
pareo       parere        parui         obey                   pa     p          -
noceo       nocere        nocui         harm                   pa     pa         -
appropinquo appropinquare appropinquavi approach               pa     palb       -
impero      imperare      imperavi      command                p      p          -
ignosco     ignoscere     ignovi        forgive/forgave        p      p          -
respondeo   respondere    respondi      answer                 p      p          rest
placeo      placere       placui        please                 patfwr p          -
"""

# English has no progressive for these.
STATES = frozenset(("video", "audio", "amo", "timeo", "habeo", "cupio", "credo", "placeo"))
