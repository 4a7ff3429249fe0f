"""Back from the weights (paper, 6 minutes).

`weights` are attention weights. Give scores that sum to 0 and lead to them (how many other solutions
are there?). Then s_1 is multiplied by `factor` under the dot score: give the new weights.
"""

import math


def answer(weights, factor):
    logs = [math.log(weight) for weight in weights]
    mean = sum(logs) / len(logs)
    scores = [log - mean for log in logs]
    exps = [math.exp(score) for score in (factor * scores[0], *scores[1:])]
    return {"scores": scores, "scaled": [each / sum(exps) for each in exps]}
