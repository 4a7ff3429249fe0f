"""Latin: sentences of a small grammar, right in both languages, with their English.

lexicon      which words there are (nouns, names, adjectives, verbs, particles: the tables)
declension, conjugation, english      which forms they have
phrases, sentences                    how they become a sentence
ambiguity                             whether it could be read in two ways
pools, phrase_drawing, word_order, drawing      which sentence comes next
"""

from heedful.data.synthetic.latin.corpus import LatinCorpus

__all__ = ["LatinCorpus"]
