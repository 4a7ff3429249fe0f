"""Adjectives: what nouns are like.

Each row: masculine, feminine (or the genitive, where one nominative serves all genders),
English, and the kinds of noun it is said of, by the letters of `nouns.KINDS`.
"""

from __future__ import annotations

ADJECTIVES = """
bonus       bona          good        patfwlbu
malus       mala          bad         patfwlbu
magnus      magna         large       atlbus
parvus      parva         small       patlbu
novus       nova          new         twbu
antiquus    antiqua       ancient     tlb
longus      longa         long        wl
latus       lata          wide        l
altus       alta          high        lb
pretiosus   pretiosa      precious    tu
albus       alba          white       at
laetus      laeta         happy       p
iratus      irata         angry       pa
fessus      fessa         tired       pa
benignus    benigna       kind        p
superbus    superba       proud       p
stultus     stulta        foolish     pa
clarus      clara         famous      pwb
callidus    callida       clever      pa
validus     valida        strong      pa
pulcher     pulchra       beautiful   patwlbs
niger       nigra         black       at
aeger       aegra         sick        pa
piger       pigra         lazy        pa
sacer       sacra         sacred      lb
miser       misera        wretched    pa
fortis      fortis        brave       pa
tristis     tristis       sad         pw
crudelis    crudelis      cruel       p
fidelis     fidelis       loyal       pa
nobilis     nobilis       noble       p
gravis      gravis        heavy       tu
levis       levis         light       t
utilis      utilis        useful      tw
brevis      brevis        short       w
dulcis      dulcis        sweet       f
celer       celeris       swift       a
acer        acris         keen        pa
felix       felicis       lucky       p
audax       audacis       bold        pa
ferox       ferocis       fierce      a
ingens      ingentis      huge        atlbus
sapiens     sapientis     wise        p
potens      potentis      powerful    p
"""

# Said of many, always before the noun; English puts them in the place of "the".
QUANTIFIERS = """
multus      multa         many        patlbu
omnis       omnis         all_the     patlbu
"""
