"""Eole: a model built from its config, decoding with its `Translator`."""

from functools import partial

import pyonmttok
import torch
from eole.config.models import CustomModelConfig
from eole.config.run import PredictConfig
from eole.constants import DefaultTokens
from eole.models.model import EncoderDecoderModel
from eole.predict import GNMTGlobalScorer, Translator

from benchmarks.peers.serving import Decode, padded, serve
from benchmarks.peers.workload import NUM_STEPS, RESERVED, VOCABULARY, WIDTH, Batch

UNK, PAD, BOS, EOS = range(RESERVED)
SYMBOLS = {
    "unk_token": DefaultTokens.UNK,
    "pad_token": DefaultTokens.PAD,
    "bos_token": DefaultTokens.BOS,
    "eos_token": DefaultTokens.EOS,
}
SIZES = {
    "hidden_size": WIDTH,  # both directions together
    "word_vec_size": WIDTH,
    "encoder": {"encoder_type": "brnn", "layers": 2},
    "decoder": {
        "decoder_type": "rnn",
        "layers": 1,
        "global_attention": "mlp",
        "bidirectional_encoder": True,
    },
}


def vocabularies() -> dict[str, object]:
    tokens = [f"t{number}" for number in range(RESERVED, VOCABULARY)]
    words = pyonmttok.build_vocab_from_tokens(tokens, special_tokens=list(SYMBOLS.values()))
    start = DefaultTokens.BOS
    return {"src": words, "tgt": words, "specials": SYMBOLS, "decoder_start_token": start}


def build(config: CustomModelConfig, words: dict[str, object]) -> EncoderDecoderModel:
    model = EncoderDecoderModel.build_blocks(config, words)
    model.build_generator(config, None, words)
    for weight in model.parameters():
        torch.nn.init.uniform_(weight, -0.1, 0.1)  # its `param_init_method: uniform`
    return model.eval()


def translator(model: EncoderDecoderModel, sizes: CustomModelConfig, beam: int) -> Translator:
    settings = PredictConfig(
        model_path=["."],  # required but not read
        src="-",
        compute_dtype="fp32",
        beam_size=beam,
        top_k=1 if beam == 1 else 0,  # its greedy search
        min_length=NUM_STEPS,
        max_length=NUM_STEPS,
        max_length_ratio=0,
        length_penalty="none",
    )
    scorer = GNMTGlobalScorer.from_config(settings)
    return Translator(model, vocabularies(), settings, sizes, device_id=-1, global_scorer=scorer)


def decode(translators: dict[int, Translator], batch: Batch, beam: int) -> list[int]:
    tokens, lengths = padded(batch, pad=PAD, end=EOS)
    read = {"src": tokens, "srclen": lengths}
    results = translators[beam].predict_batch(read, attn_debug=False)
    return [len(outputs[0]) for outputs in results["predictions"]]


def make() -> tuple[EncoderDecoderModel, Decode]:
    sizes = CustomModelConfig(**SIZES)
    model = build(sizes, vocabularies())
    return model, partial(decode, {beam: translator(model, sizes, beam) for beam in (1, 5)})


if __name__ == "__main__":
    serve(make)
