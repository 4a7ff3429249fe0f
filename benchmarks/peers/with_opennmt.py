"""OpenNMT-py: a model built from its options, decoding with its `Translator`."""

from functools import partial

import pyonmttok
import torch
from onmt import opts
from onmt.constants import DefaultTokens
from onmt.model_builder import build_base_model
from onmt.models.model import NMTModel
from onmt.translate import GNMTGlobalScorer, Translator
from onmt.utils.parse import ArgumentParser

from benchmarks.peers.serving import Decode, padded, serve
from benchmarks.peers.workload import NUM_STEPS, RESERVED, VOCABULARY, WIDTH, Batch

UNK, PAD, BOS, EOS = range(RESERVED)
SYMBOLS = [DefaultTokens.UNK, DefaultTokens.PAD, DefaultTokens.BOS, DefaultTokens.EOS]
SIZES = {
    "word_vec_size": WIDTH,
    "hidden_size": WIDTH,  # both directions together
    "encoder_type": "brnn",
    "enc_layers": 2,
    "dec_layers": 1,
    "global_attention": "mlp",
}
# Training options that a checkpoint would contain.
OTHERS = {
    "dropout": 0.0,
    "freeze_word_vecs_enc": False,
    "freeze_word_vecs_dec": False,
    "optim": "adam",
}


def vocabularies() -> dict[str, object]:
    tokens = [f"t{number}" for number in range(RESERVED, VOCABULARY)]
    words = pyonmttok.build_vocab_from_tokens(tokens, special_tokens=SYMBOLS)
    return {"src": words, "tgt": words, "decoder_start_token": DefaultTokens.BOS}


def build(words: dict[str, object]) -> NMTModel:
    options = ArgumentParser.defaults(opts.model_opts)
    vars(options).update(SIZES | OTHERS)
    ArgumentParser.update_model_opts(options)
    ArgumentParser.validate_model_opts(options)
    model = build_base_model(options, words)
    for weight in model.parameters():
        torch.nn.init.uniform_(weight, -0.1, 0.1)  # its `param_init`
    return model.eval()


def translator(model: NMTModel, words: dict[str, object], beam: int) -> Translator:
    return Translator(
        model,
        words,
        beam_size=beam,
        random_sampling_topk=1 if beam == 1 else 0,  # its greedy search
        min_length=NUM_STEPS,
        max_length=NUM_STEPS,
        max_length_ratio=0,
        global_scorer=GNMTGlobalScorer(0.0, 0.0, "none", "none"),
    )


def decode(translators: dict[int, Translator], batch: Batch, beam: int) -> list[int]:
    tokens, lengths = padded(batch, pad=PAD, end=EOS)
    read = {"src": tokens.unsqueeze(-1), "srclen": lengths}
    results = translators[beam].translate_batch(read, attn_debug=False)
    return [len(outputs[0]) for outputs in results["predictions"]]


def make() -> tuple[NMTModel, Decode]:
    words = vocabularies()
    model = build(words)
    return model, partial(decode, {beam: translator(model, words, beam) for beam in (1, 5)})


if __name__ == "__main__":
    serve(make)
