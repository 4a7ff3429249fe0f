"""Angle or length? (paper, 6 minutes)

Give the dot products of the query with each key, their softmax, and the cosines. Does the same key
come first?
"""

import math


def answer(query, keys):
    dots = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    products = [sum(q * k for q, k in zip(query, key, strict=True)) for key in keys]
    lengths = [math.hypot(*query) * math.hypot(*key) for key in keys]
    cosines = [p / length for p, length in zip(products, lengths, strict=True)]
    exps = [math.exp(dot) for dot in dots]
    weights = [value / sum(exps) for value in exps]
    return {"dot": dots, "weights": weights, "cosine": cosines}
