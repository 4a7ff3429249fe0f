"""JoeyNMT: a model built from its config dictionary, decoding with its `search`."""

from functools import partial
from types import SimpleNamespace

import torch
from joeynmt.batch import Batch as JoeyBatch
from joeynmt.model import Model, build_model
from joeynmt.search import search
from joeynmt.vocabulary import Vocabulary

from benchmarks.peers.serving import Decode, padded, serve
from benchmarks.peers.workload import NUM_STEPS, RESERVED, VOCABULARY, WIDTH, Batch

UNK, PAD, BOS, EOS = range(RESERVED)
NAMES = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
NUMBERS = {"unk_id": UNK, "pad_id": PAD, "bos_id": BOS, "eos_id": EOS}
SIDE = {"type": "recurrent", "rnn_type": "lstm", "embeddings": {"embedding_dim": WIDTH}}
CONFIG = {
    # hidden_size is per direction.
    "encoder": {**SIDE, "hidden_size": WIDTH // 2, "num_layers": 2, "bidirectional": True},
    "decoder": {**SIDE, "hidden_size": WIDTH, "num_layers": 1, "attention": "bahdanau"},
}


def build() -> Model:
    symbols = SimpleNamespace(**NAMES, **NUMBERS, sep_token=None, lang_tags=[])
    words = Vocabulary([f"t{number}" for number in range(RESERVED, VOCABULARY)], symbols)
    return build_model(CONFIG, words, words).eval()


def decode(model: Model, batch: Batch, beam: int) -> list[int]:
    tokens, lengths = padded(batch, pad=PAD, end=EOS)
    read = JoeyBatch(
        src=tokens,
        src_length=lengths,
        src_prompt_mask=None,
        trg=None,
        trg_prompt_mask=None,
        indices=torch.arange(len(batch)),
        device=tokens.device,
        pad_index=PAD,
        eos_index=EOS,
        is_train=False,
    )
    # Attention and scores are always computed; with a beam, attention is not returned.
    outputs, *_ = search(
        model,
        read,
        max_output_length=NUM_STEPS,
        min_output_length=NUM_STEPS,
        beam_size=beam,
        beam_alpha=-1,  # no length penalty
    )
    return [len(output) for output in outputs]


def make() -> tuple[Model, Decode]:
    model = build()
    return model, partial(decode, model)


if __name__ == "__main__":
    serve(make)
