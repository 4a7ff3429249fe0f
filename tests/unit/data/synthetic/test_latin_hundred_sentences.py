"""A hundred sentences, translated by hand, that the grammar must make exactly.

Both texts are written by hand; the description beside them says only which words are meant, in
which role and order, so endings, agreement, articles and tenses are the grammar's own doing.
"""

import pytest

from heedful.data.synthetic.latin.corpus import is_ambiguous
from heedful.data.synthetic.latin.lexicon import SUM, load_lexicon
from heedful.data.synthetic.latin.morphology import Case, Number, Tense
from heedful.data.synthetic.latin.phrase_sampling import build_pools
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Clause,
    Coordination,
    NounPhrase,
    PrepositionalPhrase,
    english,
    latin,
    latin_slots,
)

NOUNS = {noun.lemma: noun for noun in load_lexicon().nouns}
VERBS = {verb.lemma: verb for verb in (*load_lexicon().verbs, SUM)}
ADJECTIVES = {adjective.lemma: adjective for adjective in load_lexicon().adjectives}
ADVERBS = {adverb.latin.text: adverb for adverb in load_lexicon().adverbs}
PRONOUNS = {pronoun.forms[0]: pronoun for pronoun in build_pools(load_lexicon()).pronouns}
TENSES = {"": Tense.PRESENT, "impf": Tense.IMPERFECT, "perf": Tense.PERFECT}
SLOTS = {
    "Q": "question",
    "S": "subject",
    "O": "object",
    "R": "recipient",
    "P": "predicate",
    "L": "place",
    "A": "adverb",
    "V": "verb",
    "C": "caller",
}


def one(lemma, *, like=None, first=False, of=None, number=Number.SINGULAR):
    """A noun in the singular, perhaps with an adjective before or after it, and an owner."""
    adjective = ADJECTIVES[like] if like else None
    return NounPhrase(NOUNS[lemma], number, adjective, first, of)


def some(lemma, *, like=None, first=False, of=None):
    """The same in the plural."""
    return one(lemma, like=like, first=first, of=of, number=Number.PLURAL)


def pronoun(nominative):
    return PRONOUNS[nominative]


def dropped(nominative):
    return PRONOUNS[nominative]._replace(is_overt=False)


def at(preposition, phrase, case=None):
    found = next(
        each
        for each in load_lexicon().prepositions
        if each.latin.text == preposition and case in (None, each.case)
    )
    return PrepositionalPhrase(found, phrase)


def inside(phrase):
    return at("in", phrase, Case.ABLATIVE)


def input_projection(phrase):
    return at("in", phrase, Case.ACCUSATIVE)


def say(verb, subject, tense="", *, how=None, ask=None, command=False, negated=False, **roles):
    return Clause(
        VERBS[verb],
        subject,
        TENSES[tense],
        adverb=ADVERBS[how] if how else None,
        question=QUESTIONS[ask] if ask else None,
        is_command=command,
        is_negated=negated,
        **roles,
    )


def order(verb, who="tu", **roles):
    return say(verb, dropped(who), command=True, **roles)


# fmt: off
PAIRS = [
    # where, who and what things are
    ("Caecilius est in horto.", "Caecilius is in the garden.", "SVL",
     say("sum", one("Caecilius"), place=inside(one("hortus")))),
    ("Templum prope flumen est.", "The temple is near the river.", "SLV",
     say("sum", one("templum"), place=at("prope", one("flumen")))),
    ("Gladius militis in mensa est.", "The sword of the soldier is on the table.", "SLV",
     say("sum", one("gladius", of=one("miles")), place=inside(one("mensa")))),
    ("Aves sub arbore sunt.", "The birds are under the tree.", "SLV",
     say("sum", some("avis"), place=at("sub", one("arbor")))),
    ("Senator saepe in foro est.", "The senator is often in the forum.", "SALV",
     say("sum", one("senator"), how="saepe", place=inside(one("forum")))),
    ("Naves in portu erant.", "The ships were in the harbour.", "SLV",
     say("sum", some("navis"), "impf", place=inside(one("portus")))),
    ("In lacubus non fuimus.", "We were not in the lakes.", "LV",
     say("sum", dropped("nos"), "perf", negated=True, place=inside(some("lacus")))),
    ("Filia reginae pulchra est.", "The daughter of the queen is beautiful.", "SPV",
     say("sum", one("filia", of=one("regina")), predicate=ADJECTIVES["pulcher"])),
    ("Sorores reginae laetae sunt.", "The sisters of the queen are happy.", "SPV",
     say("sum", some("soror", of=one("regina")), predicate=ADJECTIVES["laetus"])),
    ("Montes sunt alti.", "The mountains are high.", "SVP",
     say("sum", some("mons"), predicate=ADJECTIVES["altus"])),
    ("Vinum dulce est.", "The wine is sweet.", "SPV",
     say("sum", one("vinum"), predicate=ADJECTIVES["dulcis"])),
    ("Carmina tristia erant.", "The songs were sad.", "SPV",
     say("sum", some("carmen"), "impf", predicate=ADJECTIVES["tristis"])),
    ("Ingens erat animal.", "The animal was huge.", "PVS",
     say("sum", one("animal"), "impf", predicate=ADJECTIVES["ingens"])),
    ("Servus boni domini laetus est.", "The slave of the good master is happy.", "SPV",
     say("sum", one("servus", of=one("dominus", like="bonus", first=True)),
         predicate=ADJECTIVES["laetus"])),
    ("Gladii hostium graves erant.", "The swords of the enemies were heavy.", "SPV",
     say("sum", some("gladius", of=some("hostis")), "impf", predicate=ADJECTIVES["gravis"])),
    ("Laeti eramus.", "We were happy.", "PV",
     say("sum", dropped("nos"), "impf", predicate=ADJECTIVES["laetus"])),
    ("Pater et mater fessi sunt.", "The father and the mother are tired.", "SPV",
     say("sum", Coordination(one("pater"), one("mater")), predicate=ADJECTIVES["fessus"])),
    ("Claudia et Livia iratae fuerunt.", "Claudia and Livia were angry.", "SPV",
     say("sum", Coordination(one("Claudia"), one("Livia")), "perf",
         predicate=ADJECTIVES["iratus"])),
    ("Marcus servus est.", "Marcus is a slave.", "SPV",
     say("sum", one("Marcus"), predicate=one("servus"))),
    ("Quintus non est miles fortis.", "Quintus is not a brave soldier.", "SVP",
     say("sum", one("Quintus"), negated=True, predicate=one("miles", like="fortis"))),
    ("Cornelia est uxor Caecilii.", "Cornelia is the wife of Caecilius.", "SVP",
     say("sum", one("Cornelia"), predicate=one("uxor", of=one("Caecilius")))),
    ("Cicero erat amicus consulum.", "Cicero was the friend of the consuls.", "SVP",
     say("sum", one("Cicero"), "impf", predicate=one("amicus", of=some("consul")))),
    # doing, and where
    ("Canis in via dormit.", "The dog sleeps in the street.", "SLV",
     say("dormio", one("canis"), place=inside(one("via")))),
    ("Feles in mensa dormit.", "The cat sleeps on the table.", "SLV",
     say("dormio", one("feles"), place=inside(one("mensa")))),
    ("Agricolae in agris laborabant.", "The farmers were working in the fields.", "SLV",
     say("laboro", some("agricola"), "impf", place=inside(some("ager")))),
    ("Nautae ad insulam navigaverunt.", "The sailors sailed to the island.", "SLV",
     say("navigo", some("nauta"), "perf", place=at("ad", one("insula")))),
    ("Puer in silvam cucurrit.", "The boy ran into the forest.", "SLV",
     say("curro", one("puer"), "perf", place=input_projection(one("silva")))),
    ("Milites per urbem ambulabant.", "The soldiers were walking through the city.", "SLV",
     say("ambulo", some("miles"), "impf", place=at("per", one("urbs")))),
    ("Celeres equi trans campum currunt.", "The swift horses run across the plain.", "SLV",
     say("curro", some("equus", like="celer", first=True), place=at("trans", one("campus")))),
    ("Fur ex villa properat.", "The thief hurries out of the villa.", "SLV",
     say("propero", one("fur"), place=at("ex", one("villa")))),
    ("Omnes cives in forum properaverunt.", "All the citizens hurried into the forum.", "SLV",
     say("propero", some("civis", like="omnis", first=True), "perf",
         place=input_projection(one("forum")))),
    ("Lente per vallem ambulat pastor.", "The shepherd walks through the valley slowly.",
     "ALVS", say("ambulo", one("pastor"), how="lente", place=at("per", one("vallis")))),
    ("Piratae celeriter ad litus nataverunt.", "The pirates swam to the shore quickly.",
     "SALV", say("nato", some("pirata"), "perf", how="celeriter",
                 place=at("ad", one("litus")))),
    ("Diu in carcere manebat fur.", "The thief was staying in the prison for a long time.",
     "ALVS", say("maneo", one("fur"), "impf", how="diu", place=inside(one("carcer")))),
    ("Custos ante ianuam stat.", "The guard stands in front of the door.", "SLV",
     say("sto", one("custos"), place=at("ante", one("ianua")))),
    ("Lepus post murum iacuit.", "The hare lay behind the wall.", "SLV",
     say("iaceo", one("lepus"), "perf", place=at("post", one("murus")))),
    ("Cum amicis ambulavi.", "I walked with the friends.", "LV",
     say("ambulo", dropped("ego"), "perf", place=at("cum", some("amicus")))),
    ("Sine patre ambulabat filius.", "The son was walking without the father.", "LVS",
     say("ambulo", one("filius"), "impf", place=at("sine", one("pater")))),
    ("Servus et ancilla in atrio saltant.", "The slave and the maid dance in the hall.",
     "SLV", say("salto", Coordination(one("servus"), one("ancilla")), place=inside(one("atrium")))),
    ("Uxores nautarum in litore stabant.",
     "The wives of the sailors were standing on the shore.", "SLV",
     say("sto", some("uxor", of=some("nauta")), "impf", place=inside(one("litus")))),
    ("Coquus in lecto hospitis dormivit.", "The cook slept on the bed of the guest.", "SLV",
     say("dormio", one("coquus"), "perf", place=inside(one("lectus", of=one("hospes"))))),
    ("Numquam fures laborant.", "The thieves never work.", "ASV",
     say("laboro", some("fur"), how="numquam")),
    ("Ego in urbe vivo.", "I live in the city.", "SLV",
     say("vivo", pronoun("ego"), place=inside(one("urbs")))),
    ("In magno horto ambulamus.", "We walk in the large garden.", "LV",
     say("ambulo", dropped("nos"), place=inside(one("hortus", like="magnus", first=True)))),
    ("Avis in montem salit.", "The bird jumps onto the mountain.", "SLV",
     say("salio", one("avis"), place=input_projection(one("mons")))),
    # doing something to somebody
    ("Puella servum videt.", "The girl sees the slave.", "SOV",
     say("video", one("puella"), object=one("servus"))),
    ("Servum puella videt.", "The girl sees the slave.", "OSV",
     say("video", one("puella"), object=one("servus"))),
    ("Servum videt puella.", "The girl sees the slave.", "OVS",
     say("video", one("puella"), object=one("servus"))),
    ("Puellam servus videt.", "The slave sees the girl.", "OSV",
     say("video", one("servus"), object=one("puella"))),
    ("Pater filiam amat.", "The father loves the daughter.", "SOV",
     say("amo", one("pater"), object=one("filia"))),
    ("Rex coronam habebat.", "The king had the crown.", "SOV",
     say("habeo", one("rex"), "impf", object=one("corona"))),
    ("Medicus militem aegrum iuvat.", "The doctor helps the sick soldier.", "SOV",
     say("iuvo", one("medicus"), object=one("miles", like="aeger"))),
    ("Miles fortis hostem vicit.", "The brave soldier defeated the enemy.", "SOV",
     say("vinco", one("miles", like="fortis"), "perf", object=one("hostis"))),
    ("Feles canem timent.", "The cats fear the dog.", "SOV",
     say("timeo", some("feles"), object=one("canis"))),
    ("Canem feles timet.", "The cat fears the dog.", "OSV",
     say("timeo", one("feles"), object=one("canis"))),
    ("Magnum animal puellam terruit.", "The large animal frightened the girl.", "SOV",
     say("terreo", one("animal", like="magnus", first=True), "perf", object=one("puella"))),
    ("Leo ferox aprum necat.", "The fierce lion kills the boar.", "SOV",
     say("neco", one("leo", like="ferox"), object=one("aper"))),
    ("Multi milites regem exspectant.", "Many soldiers await the king.", "SOV",
     say("exspecto", some("miles", like="multus", first=True), object=one("rex"))),
    ("Omnia dona mercator vendidit.", "The merchant sold all the gifts.", "OSV",
     say("vendo", one("mercator"), "perf", object=some("donum", like="omnis", first=True))),
    ("Servi Caecilii villam aedificant.", "The slaves of Caecilius build the villa.", "SOV",
     say("aedifico", some("servus", of=one("Caecilius")), object=one("villa"))),
    ("Frater consulis epistulam scripsit.", "The brother of the consul wrote the letter.",
     "SOV", say("scribo", one("frater", of=one("consul")), "perf", object=one("epistula"))),
    ("Hostes muros oppugnaverunt.", "The enemies attacked the walls.", "SOV",
     say("oppugno", some("hostis"), "perf", object=some("murus"))),
    ("Exercitus Hannibalis cives terruit.", "The army of Hannibal frightened the citizens.",
     "SOV", say("terreo", one("exercitus", of=one("Hannibal")), "perf", object=some("civis"))),
    ("Imperator exercitus spectat.", "The general watches the armies.", "SOV",
     say("specto", one("imperator"), object=some("exercitus"))),
    ("Consul manum reginae videt.", "The consul sees the hand of the queen.", "SOV",
     say("video", one("consul"), object=one("manus", of=one("regina")))),
    ("Rex aciem timebat.", "The king feared the battle-line.", "SOV",
     say("timeo", one("rex"), "impf", object=one("acies"))),
    ("Rem pulchram conspicimus.", "We notice the beautiful thing.", "OV",
     say("conspicio", dropped("nos"), object=one("res", like="pulcher"))),
    ("Pastor cornu militis tenet.", "The shepherd holds the horn of the soldier.", "SOV",
     say("teneo", one("pastor"), object=one("cornu", of=one("miles")))),
    ("Nomina virorum audimus.", "We hear the names of the men.", "OV",
     say("audio", dropped("nos"), object=some("nomen", of=some("vir")))),
    ("Catilina urbem non cepit.", "Catilina did not capture the city.", "SOV",
     say("capio", one("Catilina"), "perf", negated=True, object=one("urbs"))),
    ("Sapientes senatores consulem laudaverunt.", "The wise senators praised the consul.",
     "SOV", say("laudo", some("senator", like="sapiens", first=True), "perf",
                object=one("consul"))),
    ("Filia parva agricolae capras quaerit.",
     "The small daughter of the farmer seeks the goats.", "SOV",
     say("quaero", one("filia", like="parvus", of=one("agricola")), object=some("capra"))),
    ("Heri canem aegrum repperimus.", "We found the sick dog yesterday.", "AOV",
     say("reperio", dropped("nos"), "perf", how="heri", object=one("canis", like="aeger"))),
    ("Librum scribebam.", "I was writing the book.", "OV",
     say("scribo", dropped("ego"), "impf", object=one("liber"))),
    ("Amo reginam.", "I love the queen.", "VO",
     say("amo", dropped("ego"), object=one("regina"))),
    ("Tu me vides.", "You see me.", "SOV", say("video", pronoun("tu"), object=pronoun("ego"))),
    ("Nos vos exspectavimus.", "We awaited you.", "SOV",
     say("exspecto", pronoun("nos"), "perf", object=pronoun("vos"))),
    ("Fur nos decepit.", "The thief deceived us.", "SOV",
     say("decipio", one("fur"), "perf", object=pronoun("nos"))),
    # giving and favouring
    ("Mater filiabus rosas dat.", "The mother gives the roses to the daughters.", "SROV",
     say("do", one("mater"), object=some("rosa"), recipient=some("filia"))),
    ("Puellae rosam reddit Diana.", "Diana returns the rose to the girl.", "ROVS",
     say("reddo", one("Diana"), object=one("rosa"), recipient=one("puella"))),
    ("Nuntius epistulam regi mittebat.", "The messenger was sending the letter to the king.",
     "SORV", say("mitto", one("nuntius"), "impf", object=one("epistula"),
                 recipient=one("rex"))),
    ("Dominus nobis vinum praebuit.", "The master offered the wine to us.", "SROV",
     say("praebeo", one("dominus"), "perf", object=one("vinum"), recipient=pronoun("nos"))),
    ("Servus domino paret.", "The slave obeys the master.", "SRV",
     say("pareo", one("servus"), recipient=one("dominus"))),
    ("Imperatori cives credebant.", "The citizens trusted the general.", "RSV",
     say("credo", some("civis"), "impf", recipient=one("imperator"))),
    # questions
    ("Ubi est Marcus?", "Where is Marcus?", "QVS", say("sum", one("Marcus"), ask="ubi")),
    ("Ubi dormiebant canes?", "Where were the dogs sleeping?", "QVS",
     say("dormio", some("canis"), "impf", ask="ubi")),
    ("Estne Lucius consul?", "Is Lucius a consul?", "VSP",
     say("sum", one("Lucius"), ask="-ne", predicate=one("consul"))),
    ("Ambulatne puella in horto?", "Does the girl walk in the garden?", "VSL",
     say("ambulo", one("puella"), ask="-ne", place=inside(one("hortus")))),
    ("Viditne regina equos?", "Did the queen see the horses?", "VSO",
     say("video", one("regina"), "perf", ask="-ne", object=some("equus"))),
    ("Num lupus leonem timet?", "Surely the wolf does not fear the lion?", "QSOV",
     say("timeo", one("lupus"), ask="num", object=one("leo"))),
    ("Nonne puella cantat?", "Surely the girl sings?", "QSV",
     say("canto", one("puella"), ask="nonne")),
    ("Quis in theatro clamabat?", "Who was shouting in the theatre?", "QLV",
     say("clamo", None, "impf", ask="quis", place=inside(one("theatrum")))),
    ("Quem dominus punit?", "Whom does the master punish?", "QSV",
     say("punio", one("dominus"), ask="quem")),
    ("Quid portant servi?", "What do the slaves carry?", "QVS",
     say("porto", some("servus"), ask="quid")),
    ("Cui dedit regina anulum?", "To whom did the queen give the ring?", "QVSO",
     say("do", one("regina"), "perf", ask="cui", object=one("anulus"))),
    ("Cur nautae non laborant?", "Why do the sailors not work?", "QSV",
     say("laboro", some("nauta"), ask="cur", negated=True)),
    # commands
    ("Ambula in hortum, Marce!", "Walk into the garden, Marcus!", "VLC",
     order("ambulo", place=input_projection(one("hortus")), addressee=one("Marcus"))),
    ("Caecili, da mihi librum!", "Give the book to me, Caecilius!", "CVRO",
     order("do", object=one("liber"), recipient=pronoun("ego"), addressee=one("Caecilius"))),
    ("Duc equum ex silva!", "Lead the horse out of the forest!", "VOL",
     order("duco", object=one("equus"), place=at("ex", one("silva")))),
    ("Capite furem, cives!", "Capture the thief, citizens!", "VOC",
     order("capio", "vos", object=one("fur"), addressee=some("civis"))),
]
# fmt: on


def test_there_are_a_hundred():
    assert len(PAIRS) == 100


@pytest.mark.parametrize(
    ("source", "target", "slots", "clause"), PAIRS, ids=[pair[0] for pair in PAIRS]
)
def test_the_grammar_says_it_in_both_languages(source, target, slots, clause):
    arranged = [SLOTS[letter] for letter in slots]
    chunks = latin_slots(clause)
    assert sorted(arranged) == sorted(chunks)
    assert latin(clause, chunks, arranged) == source
    assert english(clause) == target
    assert not is_ambiguous(clause, chunks, arranged)
