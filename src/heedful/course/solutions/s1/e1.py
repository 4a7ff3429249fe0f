"""One step by hand (paper, 6 minutes).

The scores of three source words are s_i, and `exp_scores` has e^{s_i}. Their states are `states`.
Give the weights, the context, and the weights after adding 5 to every score. Fractions such as 4/7
are welcome.
"""

import math


def answer(exp_scores, states):
    exps = exp_scores
    weights = [each / sum(exps) for each in exps]
    context = [sum(w * h[i] for w, h in zip(weights, states, strict=True)) for i in range(2)]
    return {"weights": weights, "context": context, "after": weights}
