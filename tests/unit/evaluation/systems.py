"""References drawn from a few words, and systems that get some of them wrong."""

import random

WORDS = [
    *("the", "a", "dog", "cat", "man", "sees", "runs"),
    *("house", "in", "of", "tree", "small", "red", "near"),
]


def _sentence(rng):
    return " ".join(rng.choices(WORDS, k=rng.randint(4, 14)))


REFERENCES = [_sentence(random.Random(number)) for number in range(150)]


def system(share, *, seed=0):
    """Outputs in which about this share of words has been replaced."""
    rng = random.Random(seed)
    return [
        " ".join(rng.choice(WORDS) if rng.random() < share else word for word in line.split())
        for line in REFERENCES
    ]
