"""The forward algorithm by hand (paper, 10 minutes).

Two states with the probabilities `start`. A state stays with probability `stay`. `p_one` is the
probability of observing 1 in each state; `observed` is what was seen at t=1 and t=2. Give the
filtered posterior at t=1, at t=2, and the smoothed one at t=1: the probability of each state.
"""


def normalize(numbers):
    return [number / sum(numbers) for number in numbers]


def answer(start, stay, p_one, observed):
    def emission(seen):
        return [p if seen else 1 - p for p in p_one]

    move = [[stay, 1 - stay], [1 - stay, stay]]
    first = normalize([s * e for s, e in zip(start, emission(observed[0]), strict=True)])
    predicted = [sum(first[i] * move[i][j] for i in range(2)) for j in range(2)]
    late = emission(observed[1])
    second = normalize([p * e for p, e in zip(predicted, late, strict=True)])
    backward = [sum(move[i][j] * late[j] for j in range(2)) for i in range(2)]
    smoothed = normalize([f * b for f, b in zip(first, backward, strict=True)])
    return {"filtered_1": first, "filtered_2": second, "smoothed_1": smoothed}
