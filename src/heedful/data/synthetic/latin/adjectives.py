"""Adjectives: what nouns are like.

Each row: masculine, feminine (or the genitive, where one nominative serves all genders),
English, and the kinds of noun it is said of, by the letters of `nouns.KINDS`.
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
