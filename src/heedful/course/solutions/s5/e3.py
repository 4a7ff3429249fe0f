"""Two spaces (code, 10 minutes).

The decoder holds q = Q h, the rotated state of the source word that it needs. The dot product q . h
then finds the right word no more often than chance. Which W repairs the general score q W h?
"""


def scores(queries, keys, W):
    """Return q W h of every query (rows) with every key (columns)."""
    return queries @ W @ keys.T  # blank


def repair(Q):
    return Q  # blank
