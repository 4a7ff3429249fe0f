"""Hard-coded connections (experiment, two minutes of machine time).

A fixed alignment connects step t with source word t; a learned one may connect any. The task is to
reverse words. Predict both scores, then

    heedful train simple-rnn-attention-small --run runs/diagonal \\
      --set model.decoder.attention.alignment.type=fixed \\
      --set model.decoder.attention.alignment.pattern=diagonal
    heedful train simple-rnn-attention-small --run runs/learned

Hand in the folders and the scores of heedful evaluate in percent, in this order. Which task would the
diagonal solve?
"""

MEASURED = [31.2, 98.8]


def answer():
    return {"given": MEASURED, "measured": MEASURED}
