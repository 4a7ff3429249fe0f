"""Attention of 1964 (code, 12 minutes).

Nadaraya-Watson regression is softmax attention: queries are the places `at`, keys the known x, values
the known y, and the score is log K = -(at - x)^2 / (2 h^2). Then sweep h: what happens at the ends?
"""


def smooth(x, y, at, h):
    """Return the estimates at some places."""
    scores = -((at[:, None] - x) ** 2) / (2 * h**2)  # blank
    return scores.softmax(-1) @ y  # blank
