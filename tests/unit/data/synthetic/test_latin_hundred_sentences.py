"""A hundred sentences, translated by hand, that the grammar must generate exactly.

Both texts are written by hand; the clause beside them specifies only words, roles and order, so
endings, agreement, articles and tenses come from the grammar.
"""

from heedful.data.synthetic.latin.lexicon import SUM, load_lexicon
from heedful.data.synthetic.latin.morphology import Case, Number, Tense
from heedful.data.synthetic.latin.syntax import (
    QUESTIONS,
    Clause,
    Coordination,
    NounPhrase,
    PrepositionalPhrase,
    english,
    is_ambiguous,
    latin,
    latin_slots,
    read_pronouns,
)

NOUNS = {noun.lemma: noun for noun in load_lexicon().nouns}
VERBS = {verb.lemma: verb for verb in (*load_lexicon().verbs, SUM)}
ADJECTIVES = {adjective.lemma: adjective for adjective in load_lexicon().adjectives}
ADVERBS = {adverb.latin.text: adverb for adverb in load_lexicon().adverbs}
PRONOUNS = {pronoun.forms[0]: pronoun for pronoun in read_pronouns()}
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
    "C": "addressee",
}


def sg(lemma, *, like=None, first=False, of=None, number=Number.SINGULAR):
    """A singular noun phrase; `first` puts the adjective before the noun, `of` is the possessor."""
    adjective = ADJECTIVES[like] if like else None
    return NounPhrase(NOUNS[lemma], number, adjective, first, of)


def pl(lemma, *, like=None, first=False, of=None):
    """A plural noun phrase."""
    return sg(lemma, like=like, first=first, of=of, number=Number.PLURAL)


def pronoun(nominative):
    return PRONOUNS[nominative]


def covert(nominative):
    return PRONOUNS[nominative]._replace(is_overt=False)


def at(preposition, phrase, case=None):
    entry = next(
        entry
        for entry in load_lexicon().prepositions
        if entry.latin.text == preposition and case in (None, entry.case)
    )
    return PrepositionalPhrase(entry, phrase)


def inside(phrase):
    return at("in", phrase, Case.ABLATIVE)


def into(phrase):
    return at("in", phrase, Case.ACCUSATIVE)


def clause(
    verb, subject, tense="", *, adverb=None, ask=None, is_command=False, negated=False, **roles
):
    return Clause(
        VERBS[verb],
        subject,
        TENSES[tense],
        adverb=ADVERBS[adverb] if adverb else None,
        question=QUESTIONS[ask] if ask else None,
        is_command=is_command,
        is_negated=negated,
        **roles,
    )


def command(verb, listener="tu", **roles):
    return clause(verb, covert(listener), is_command=True, **roles)


# fmt: off
PAIRS = [
    # where, who and what things are
    ("Caecilius est in horto.", "Caecilius is in the garden.", "SVL",
     clause("sum", sg("Caecilius"), place=inside(sg("hortus")))),
    ("Templum prope flumen est.", "The temple is near the river.", "SLV",
     clause("sum", sg("templum"), place=at("prope", sg("flumen")))),
    ("Gladius militis in mensa est.", "The sword of the soldier is on the table.", "SLV",
     clause("sum", sg("gladius", of=sg("miles")), place=inside(sg("mensa")))),
    ("Aves sub arbore sunt.", "The birds are under the tree.", "SLV",
     clause("sum", pl("avis"), place=at("sub", sg("arbor")))),
    ("Senator saepe in foro est.", "The senator is often in the forum.", "SALV",
     clause("sum", sg("senator"), adverb="saepe", place=inside(sg("forum")))),
    ("Naves in portu erant.", "The ships were in the harbour.", "SLV",
     clause("sum", pl("navis"), "impf", place=inside(sg("portus")))),
    ("In lacubus non fuimus.", "We were not in the lakes.", "LV",
     clause("sum", covert("nos"), "perf", negated=True, place=inside(pl("lacus")))),
    ("Filia reginae pulchra est.", "The daughter of the queen is beautiful.", "SPV",
     clause("sum", sg("filia", of=sg("regina")), predicate=ADJECTIVES["pulcher"])),
    ("Sorores reginae laetae sunt.", "The sisters of the queen are happy.", "SPV",
     clause("sum", pl("soror", of=sg("regina")), predicate=ADJECTIVES["laetus"])),
    ("Montes sunt alti.", "The mountains are high.", "SVP",
     clause("sum", pl("mons"), predicate=ADJECTIVES["altus"])),
    ("Vinum dulce est.", "The wine is sweet.", "SPV",
     clause("sum", sg("vinum"), predicate=ADJECTIVES["dulcis"])),
    ("Carmina tristia erant.", "The songs were sad.", "SPV",
     clause("sum", pl("carmen"), "impf", predicate=ADJECTIVES["tristis"])),
    ("Ingens erat animal.", "The animal was huge.", "PVS",
     clause("sum", sg("animal"), "impf", predicate=ADJECTIVES["ingens"])),
    ("Servus boni domini laetus est.", "The slave of the good master is happy.", "SPV",
     clause("sum", sg("servus", of=sg("dominus", like="bonus", first=True)),
         predicate=ADJECTIVES["laetus"])),
    ("Gladii hostium graves erant.", "The swords of the enemies were heavy.", "SPV",
     clause("sum", pl("gladius", of=pl("hostis")), "impf", predicate=ADJECTIVES["gravis"])),
    ("Laeti eramus.", "We were happy.", "PV",
     clause("sum", covert("nos"), "impf", predicate=ADJECTIVES["laetus"])),
    ("Pater et mater fessi sunt.", "The father and the mother are tired.", "SPV",
     clause("sum", Coordination(sg("pater"), sg("mater")), predicate=ADJECTIVES["fessus"])),
    ("Claudia et Livia iratae fuerunt.", "Claudia and Livia were angry.", "SPV",
     clause("sum", Coordination(sg("Claudia"), sg("Livia")), "perf",
         predicate=ADJECTIVES["iratus"])),
    ("Marcus servus est.", "Marcus is a slave.", "SPV",
     clause("sum", sg("Marcus"), predicate=sg("servus"))),
    ("Quintus non est miles fortis.", "Quintus is not a brave soldier.", "SVP",
     clause("sum", sg("Quintus"), negated=True, predicate=sg("miles", like="fortis"))),
    ("Cornelia est uxor Caecilii.", "Cornelia is the wife of Caecilius.", "SVP",
     clause("sum", sg("Cornelia"), predicate=sg("uxor", of=sg("Caecilius")))),
    ("Cicero erat amicus consulum.", "Cicero was the friend of the consuls.", "SVP",
     clause("sum", sg("Cicero"), "impf", predicate=sg("amicus", of=pl("consul")))),
    # doing, and where
    ("Canis in via dormit.", "The dog sleeps in the street.", "SLV",
     clause("dormio", sg("canis"), place=inside(sg("via")))),
    ("Feles in mensa dormit.", "The cat sleeps on the table.", "SLV",
     clause("dormio", sg("feles"), place=inside(sg("mensa")))),
    ("Agricolae in agris laborabant.", "The farmers were working in the fields.", "SLV",
     clause("laboro", pl("agricola"), "impf", place=inside(pl("ager")))),
    ("Nautae ad insulam navigaverunt.", "The sailors sailed to the island.", "SLV",
     clause("navigo", pl("nauta"), "perf", place=at("ad", sg("insula")))),
    ("Puer in silvam cucurrit.", "The boy ran into the forest.", "SLV",
     clause("curro", sg("puer"), "perf", place=into(sg("silva")))),
    ("Milites per urbem ambulabant.", "The soldiers were walking through the city.", "SLV",
     clause("ambulo", pl("miles"), "impf", place=at("per", sg("urbs")))),
    ("Celeres equi trans campum currunt.", "The swift horses run across the plain.", "SLV",
     clause("curro", pl("equus", like="celer", first=True), place=at("trans", sg("campus")))),
    ("Fur ex villa properat.", "The thief hurries out of the villa.", "SLV",
     clause("propero", sg("fur"), place=at("ex", sg("villa")))),
    ("Omnes cives in forum properaverunt.", "All the citizens hurried into the forum.", "SLV",
     clause("propero", pl("civis", like="omnis", first=True), "perf",
         place=into(sg("forum")))),
    ("Lente per vallem ambulat pastor.", "The shepherd walks through the valley slowly.",
     "ALVS", clause("ambulo", sg("pastor"), adverb="lente", place=at("per", sg("vallis")))),
    ("Piratae celeriter ad litus nataverunt.", "The pirates swam to the shore quickly.",
     "SALV", clause("nato", pl("pirata"), "perf", adverb="celeriter",
                 place=at("ad", sg("litus")))),
    ("Diu in carcere manebat fur.", "The thief was staying in the prison for a long time.",
     "ALVS", clause("maneo", sg("fur"), "impf", adverb="diu", place=inside(sg("carcer")))),
    ("Custos ante ianuam stat.", "The guard stands in front of the door.", "SLV",
     clause("sto", sg("custos"), place=at("ante", sg("ianua")))),
    ("Lepus post murum iacuit.", "The hare lay behind the wall.", "SLV",
     clause("iaceo", sg("lepus"), "perf", place=at("post", sg("murus")))),
    ("Cum amicis ambulavi.", "I walked with the friends.", "LV",
     clause("ambulo", covert("ego"), "perf", place=at("cum", pl("amicus")))),
    ("Sine patre ambulabat filius.", "The son was walking without the father.", "LVS",
     clause("ambulo", sg("filius"), "impf", place=at("sine", sg("pater")))),
    ("Servus et ancilla in atrio saltant.", "The slave and the maid dance in the hall.",
     "SLV", clause("salto", Coordination(sg("servus"), sg("ancilla")), place=inside(sg("atrium")))),
    ("Uxores nautarum in litore stabant.",
     "The wives of the sailors were standing on the shore.", "SLV",
     clause("sto", pl("uxor", of=pl("nauta")), "impf", place=inside(sg("litus")))),
    ("Coquus in lecto hospitis dormivit.", "The cook slept on the bed of the guest.", "SLV",
     clause("dormio", sg("coquus"), "perf", place=inside(sg("lectus", of=sg("hospes"))))),
    ("Numquam fures laborant.", "The thieves never work.", "ASV",
     clause("laboro", pl("fur"), adverb="numquam")),
    ("Ego in urbe vivo.", "I live in the city.", "SLV",
     clause("vivo", pronoun("ego"), place=inside(sg("urbs")))),
    ("In magno horto ambulamus.", "We walk in the large garden.", "LV",
     clause("ambulo", covert("nos"), place=inside(sg("hortus", like="magnus", first=True)))),
    ("Avis in montem salit.", "The bird jumps onto the mountain.", "SLV",
     clause("salio", sg("avis"), place=into(sg("mons")))),
    # doing something to somebody
    ("Puella servum videt.", "The girl sees the slave.", "SOV",
     clause("video", sg("puella"), object=sg("servus"))),
    ("Servum puella videt.", "The girl sees the slave.", "OSV",
     clause("video", sg("puella"), object=sg("servus"))),
    ("Servum videt puella.", "The girl sees the slave.", "OVS",
     clause("video", sg("puella"), object=sg("servus"))),
    ("Puellam servus videt.", "The slave sees the girl.", "OSV",
     clause("video", sg("servus"), object=sg("puella"))),
    ("Pater filiam amat.", "The father loves the daughter.", "SOV",
     clause("amo", sg("pater"), object=sg("filia"))),
    ("Rex coronam habebat.", "The king had the crown.", "SOV",
     clause("habeo", sg("rex"), "impf", object=sg("corona"))),
    ("Medicus militem aegrum iuvat.", "The doctor helps the sick soldier.", "SOV",
     clause("iuvo", sg("medicus"), object=sg("miles", like="aeger"))),
    ("Miles fortis hostem vicit.", "The brave soldier defeated the enemy.", "SOV",
     clause("vinco", sg("miles", like="fortis"), "perf", object=sg("hostis"))),
    ("Feles canem timent.", "The cats fear the dog.", "SOV",
     clause("timeo", pl("feles"), object=sg("canis"))),
    ("Canem feles timet.", "The cat fears the dog.", "OSV",
     clause("timeo", sg("feles"), object=sg("canis"))),
    ("Magnum animal puellam terruit.", "The large animal frightened the girl.", "SOV",
     clause("terreo", sg("animal", like="magnus", first=True), "perf", object=sg("puella"))),
    ("Leo ferox aprum necat.", "The fierce lion kills the boar.", "SOV",
     clause("neco", sg("leo", like="ferox"), object=sg("aper"))),
    ("Multi milites regem exspectant.", "Many soldiers await the king.", "SOV",
     clause("exspecto", pl("miles", like="multus", first=True), object=sg("rex"))),
    ("Omnia dona mercator vendidit.", "The merchant sold all the gifts.", "OSV",
     clause("vendo", sg("mercator"), "perf", object=pl("donum", like="omnis", first=True))),
    ("Servi Caecilii villam aedificant.", "The slaves of Caecilius build the villa.", "SOV",
     clause("aedifico", pl("servus", of=sg("Caecilius")), object=sg("villa"))),
    ("Frater consulis epistulam scripsit.", "The brother of the consul wrote the letter.",
     "SOV", clause("scribo", sg("frater", of=sg("consul")), "perf", object=sg("epistula"))),
    ("Hostes muros oppugnaverunt.", "The enemies attacked the walls.", "SOV",
     clause("oppugno", pl("hostis"), "perf", object=pl("murus"))),
    ("Exercitus Hannibalis cives terruit.", "The army of Hannibal frightened the citizens.",
     "SOV", clause("terreo", sg("exercitus", of=sg("Hannibal")), "perf", object=pl("civis"))),
    ("Imperator exercitus spectat.", "The general watches the armies.", "SOV",
     clause("specto", sg("imperator"), object=pl("exercitus"))),
    ("Consul manum reginae videt.", "The consul sees the hand of the queen.", "SOV",
     clause("video", sg("consul"), object=sg("manus", of=sg("regina")))),
    ("Rex aciem timebat.", "The king feared the battle-line.", "SOV",
     clause("timeo", sg("rex"), "impf", object=sg("acies"))),
    ("Rem pulchram conspicimus.", "We notice the beautiful thing.", "OV",
     clause("conspicio", covert("nos"), object=sg("res", like="pulcher"))),
    ("Pastor cornu militis tenet.", "The shepherd holds the horn of the soldier.", "SOV",
     clause("teneo", sg("pastor"), object=sg("cornu", of=sg("miles")))),
    ("Nomina virorum audimus.", "We hear the names of the men.", "OV",
     clause("audio", covert("nos"), object=pl("nomen", of=pl("vir")))),
    ("Catilina urbem non cepit.", "Catilina did not capture the city.", "SOV",
     clause("capio", sg("Catilina"), "perf", negated=True, object=sg("urbs"))),
    ("Sapientes senatores consulem laudaverunt.", "The wise senators praised the consul.",
     "SOV", clause("laudo", pl("senator", like="sapiens", first=True), "perf",
                object=sg("consul"))),
    ("Filia parva agricolae capras quaerit.",
     "The small daughter of the farmer seeks the goats.", "SOV",
     clause("quaero", sg("filia", like="parvus", of=sg("agricola")), object=pl("capra"))),
    ("Heri canem aegrum repperimus.", "We found the sick dog yesterday.", "AOV",
     clause("reperio", covert("nos"), "perf", adverb="heri", object=sg("canis", like="aeger"))),
    ("Librum scribebam.", "I was writing the book.", "OV",
     clause("scribo", covert("ego"), "impf", object=sg("liber"))),
    ("Amo reginam.", "I love the queen.", "VO",
     clause("amo", covert("ego"), object=sg("regina"))),
    ("Tu me vides.", "You see me.", "SOV", clause("video", pronoun("tu"), object=pronoun("ego"))),
    ("Nos vos exspectavimus.", "We awaited you.", "SOV",
     clause("exspecto", pronoun("nos"), "perf", object=pronoun("vos"))),
    ("Fur nos decepit.", "The thief deceived us.", "SOV",
     clause("decipio", sg("fur"), "perf", object=pronoun("nos"))),
    # giving and favouring
    ("Mater filiabus rosas dat.", "The mother gives the roses to the daughters.", "SROV",
     clause("do", sg("mater"), object=pl("rosa"), recipient=pl("filia"))),
    ("Puellae rosam reddit Diana.", "Diana returns the rose to the girl.", "ROVS",
     clause("reddo", sg("Diana"), object=sg("rosa"), recipient=sg("puella"))),
    ("Nuntius epistulam regi mittebat.", "The messenger was sending the letter to the king.",
     "SORV", clause("mitto", sg("nuntius"), "impf", object=sg("epistula"),
                 recipient=sg("rex"))),
    ("Dominus nobis vinum praebuit.", "The master offered the wine to us.", "SROV",
     clause("praebeo", sg("dominus"), "perf", object=sg("vinum"), recipient=pronoun("nos"))),
    ("Servus domino paret.", "The slave obeys the master.", "SRV",
     clause("pareo", sg("servus"), recipient=sg("dominus"))),
    ("Imperatori cives credebant.", "The citizens trusted the general.", "RSV",
     clause("credo", pl("civis"), "impf", recipient=sg("imperator"))),
    # questions
    ("Ubi est Marcus?", "Where is Marcus?", "QVS", clause("sum", sg("Marcus"), ask="ubi")),
    ("Ubi dormiebant canes?", "Where were the dogs sleeping?", "QVS",
     clause("dormio", pl("canis"), "impf", ask="ubi")),
    ("Estne Lucius consul?", "Is Lucius a consul?", "VSP",
     clause("sum", sg("Lucius"), ask="-ne", predicate=sg("consul"))),
    ("Ambulatne puella in horto?", "Does the girl walk in the garden?", "VSL",
     clause("ambulo", sg("puella"), ask="-ne", place=inside(sg("hortus")))),
    ("Viditne regina equos?", "Did the queen see the horses?", "VSO",
     clause("video", sg("regina"), "perf", ask="-ne", object=pl("equus"))),
    ("Num lupus leonem timet?", "Surely the wolf does not fear the lion?", "QSOV",
     clause("timeo", sg("lupus"), ask="num", object=sg("leo"))),
    ("Nonne puella cantat?", "Surely the girl sings?", "QSV",
     clause("canto", sg("puella"), ask="nonne")),
    ("Quis in theatro clamabat?", "Who was shouting in the theatre?", "QLV",
     clause("clamo", None, "impf", ask="quis", place=inside(sg("theatrum")))),
    ("Quem dominus punit?", "Whom does the master punish?", "QSV",
     clause("punio", sg("dominus"), ask="quem")),
    ("Quid portant servi?", "What do the slaves carry?", "QVS",
     clause("porto", pl("servus"), ask="quid")),
    ("Cui dedit regina anulum?", "To whom did the queen give the ring?", "QVSO",
     clause("do", sg("regina"), "perf", ask="cui", object=sg("anulus"))),
    ("Cur nautae non laborant?", "Why do the sailors not work?", "QSV",
     clause("laboro", pl("nauta"), ask="cur", negated=True)),
    # commands
    ("Ambula in hortum, Marce!", "Walk into the garden, Marcus!", "VLC",
     command("ambulo", place=into(sg("hortus")), addressee=sg("Marcus"))),
    ("Caecili, da mihi librum!", "Give the book to me, Caecilius!", "CVRO",
     command("do", object=sg("liber"), recipient=pronoun("ego"), addressee=sg("Caecilius"))),
    ("Duc equum ex silva!", "Lead the horse out of the forest!", "VOL",
     command("duco", object=sg("equus"), place=at("ex", sg("silva")))),
    ("Capite furem, cives!", "Capture the thief, citizens!", "VOC",
     command("capio", "vos", object=sg("fur"), addressee=pl("civis"))),
]
# fmt: on


def test_reference_sentences_are_a_hundred():
    assert len(PAIRS) == 100


def test_grammar_reproduces_reference_translations():
    for source, target, slots, clause in PAIRS:
        order = [SLOTS[letter] for letter in slots]
        chunks = latin_slots(clause)
        assert sorted(order) == sorted(chunks), source
        assert latin(clause, chunks, order) == source
        assert english(clause) == target
        assert not is_ambiguous(clause, chunks, order), source
