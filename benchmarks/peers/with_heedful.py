"""heedful: a model built from its config, decoding as `heedful translate` does."""

import sys
from functools import partial

import torch

from benchmarks.peers.serving import Decode, serve
from benchmarks.peers.workload import NUM_STEPS, VOCABULARY, WIDTH, Batch
from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.text.batching import collate_sources
from heedful.models.base import Seq2SeqModel
from heedful.models.encoder_decoder import EncoderDecoderConfig
from heedful.recipes import load_recipe
from heedful.search import BeamSearchOptions, LengthPenalty
from heedful.search.logits_processors import MinLength
from heedful.tokenization.vocabulary import EOS

RECURRENT = {
    "encoder": {
        "type": "recurrent",
        "cell": "lstm",
        "embedding_size": WIDTH,
        "hidden_size": WIDTH,  # both directions together
        "num_layers": 2,
    },
    "decoder": {
        "type": "recurrent",
        "cell": "lstm",
        "embedding_size": WIDTH,
        "hidden_size": WIDTH,
        "wiring": {"type": "step-then-attend"},
        "attention": {"score": {"type": "additive", "hidden_size": WIDTH}},
    },
}
THREE_LAYERS = ["model.encoder.num_layers=3", "model.decoder.num_layers=3"]


def build_plain(kind: str) -> Seq2SeqModel:
    if kind == "recurrent":
        config = EncoderDecoderConfig.model_validate(RECURRENT)
    else:
        config = load_recipe("transformer-2017-small", THREE_LAYERS).model
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).eval()


def build(kind: str) -> Seq2SeqModel:
    return accelerate_for_inference(build_plain(kind), "cpu")  # as in a `Translator`


def decode(model: Seq2SeqModel, batch: Batch, beam: int) -> list[int]:
    lengths = torch.full((len(batch),), NUM_STEPS - 1)  # EOS is a step, too
    hypotheses = model.search(
        collate_sources(batch),
        beam_size=beam,
        max_lengths=lengths,
        length_penalty=LengthPenalty(),
        options=BeamSearchOptions(processors=(MinLength(lengths, eos=EOS),)),
    )
    return [len(outputs[0].tokens) + 1 for outputs in hypotheses]


def make(kind: str) -> tuple[Seq2SeqModel, Decode]:
    model = build(kind)
    return model, partial(decode, model)


if __name__ == "__main__":
    serve(partial(make, sys.argv[1]))
