"""How many looks? (experiment, a minute of machine time)

A model that may look once, and one that looks as often as its recipe says:

    heedful train ram-2014-small --run runs/one --set model.num_glimpses=1
    heedful train ram-2014-small --run runs/all

Hand in the folders and the first number of heedful evaluate for each. Train with three seeds: how
large is the spread, and what does it have to do with exercise 3.4?
"""

MEASURED = [4.6, 1.8]


def answer():
    return {"given": MEASURED, "measured": MEASURED}
