"""The short answer wins (paper and code, 10 minutes).

Every word has the probability `word`, and the end the probability `eos` at each step. The score of n
words is log p / (n + 1)^alpha, where p includes the end. Which n from 0 to `longest` is best? Compare
alpha 0, 0.6 and 1. Then try a trained model: heedful translate RUN FILE --beam 50, with
--set decoding.length_penalty.type=none and without.
"""

import math


def best_length(word, eos, alpha, longest):
    def score(n):
        log_p = n * math.log(word) + math.log(eos)  # blank
        return log_p / (n + 1) ** alpha  # blank

    return max(range(longest + 1), key=score)
