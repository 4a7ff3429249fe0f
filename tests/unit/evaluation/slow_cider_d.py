"""CIDEr-D in plain loops, one n-gram at a time."""

import math
from collections import Counter


def slow_cider_d(groups, output, group):
    """The formula of the paper in plain loops, with counts as term frequencies."""

    def ngrams(tokens, n):
        return Counter(tuple(tokens[i : i + n]) for i in range(len(tokens) - n + 1))

    def vector(tokens, n):
        result = {}
        for ngram, count in ngrams(tokens, n).items():
            documents = sum(any(ngram in ngrams(text, n) for text in texts) for texts in groups)
            result[ngram] = count * math.log(len(groups) / max(documents, 1))
        return result

    total = 0.0
    for reference in groups[group]:
        gap = max(len(output) - 1, 0) - max(len(reference) - 1, 0)
        for n in range(1, 5):
            one, other = vector(output, n), vector(reference, n)
            norms = math.hypot(*one.values()) * math.hypot(*other.values())
            dot = sum(min(one.get(key, 0), value) * value for key, value in other.items())
            total += (dot / norms if norms else 0) * math.exp(-(gap**2) / 72)
    return 10 * total / 4 / len(groups[group])
