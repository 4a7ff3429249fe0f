"""heedful: a model by its configuration, asked as `heedful translate` asks it."""

import sys
from functools import partial

import torch

from benchmarks.peers.answering import Decode, serve
from benchmarks.peers.workload import NUM_STEPS, VOCABULARY, WIDTH, Batch
from heedful.data.collate import collate_sources
from heedful.layers.fused.packing import weights_at_rest
from heedful.recipes import load_recipe
from heedful.search import LengthPenalty, Searching
from heedful.search.lengths import AtLeast
from heedful.tasks.model import Model
from heedful.tasks.transduction import TransducerConfig
from heedful.text.vocabulary import EOS

RECURRENT = {
    "encoder": {
        "kind": "recurrent",
        "cell": "lstm",
        "embedding_size": WIDTH,
        "hidden_size": WIDTH,  # both directions together
        "num_layers": 2,
    },
    "decoder": {
        "kind": "recurrent",
        "cell": "lstm",
        "embedding_size": WIDTH,
        "hidden_size": WIDTH,
        "wiring": {"kind": "step-then-attend"},
        "attention": {"score": {"kind": "additive", "hidden_size": WIDTH}},
    },
}
THREE_LAYERS = ["model.encoder.num_layers=3", "model.decoder.num_layers=3"]


def build(kind: str) -> Model:
    if kind == "recurrent":
        config = TransducerConfig.model_validate(RECURRENT)
    else:
        config = load_recipe("transformer-2017-small", THREE_LAYERS).model
    return config.build(source_size=VOCABULARY, target_size=VOCABULARY).eval()


def decode(model: Model, batch: Batch, beam: int) -> list[int]:
    lengths = torch.full((len(batch),), NUM_STEPS - 1)  # the end symbol is a step too
    found = model.search(
        collate_sources(batch),
        width=beam,
        max_lengths=lengths,
        penalty=LengthPenalty(),
        how=Searching(rules=(AtLeast(lengths, end=EOS),)),
    )
    return [len(outputs[0].tokens) + 1 for outputs in found]


def make(kind: str) -> tuple[Model, Decode]:
    model = build(kind)
    return model, partial(decode, model)


if __name__ == "__main__":
    with weights_at_rest():  # as a `Translator` promises
        serve(partial(make, sys.argv[1]))
