"""Hugging Face transformers: Marian with random parameters, decoding with `generate`."""

from functools import partial

from transformers import MarianConfig, MarianMTModel

from benchmarks.peers.serving import Decode, padded, serve
from benchmarks.peers.workload import NUM_STEPS, VOCABULARY, WIDTH, Batch

PAD, START, END = 0, 1, 2
SIDE = {"layers": 3, "attention_heads": 4, "ffn_dim": 4 * WIDTH}


def build() -> MarianMTModel:
    sides = {f"{side}_{name}": SIDE[name] for side in ("encoder", "decoder") for name in SIDE}
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        max_position_embeddings=64,
        pad_token_id=PAD,
        eos_token_id=END,
        forced_eos_token_id=END,
        decoder_start_token_id=START,
        **sides,
    )
    return MarianMTModel(config).eval()


def decode(model: MarianMTModel, batch: Batch, beam: int) -> list[int]:
    tokens, _ = padded(batch, pad=PAD, end=END)
    outputs = model.generate(
        input_ids=tokens,
        attention_mask=(tokens != PAD).long(),
        num_beams=beam,
        do_sample=False,
        min_new_tokens=NUM_STEPS - 1,  # and then EOS
        max_new_tokens=NUM_STEPS,
    )
    return [len(output) - 1 for output in outputs.tolist()]  # BOS is not a step


def make() -> tuple[MarianMTModel, Decode]:
    model = build()
    return model, partial(decode, model)


if __name__ == "__main__":
    serve(make)
