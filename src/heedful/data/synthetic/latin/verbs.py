"""Verbs: what is done, by what it takes beside a subject.

Each row: present, infinitive, perfect, English, the kinds of subject and of object (letters of
`nouns.KINDS`, or - for none), and where it may happen.
    run/ran/running/runs    English forms that do not follow the rule
    rest, motion, water     the prepositions it takes; - for none

A verb with two forms written alike in present and perfect (venit, legit, bibit) has no place
here: its sentences would have two translations.
"""

from __future__ import annotations

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
FAVOURING = """
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
