"""Parameter counts that papers print, and their derivation from the matrices of a recipe."""

from typing import NamedTuple

import torch

from heedful.recipes import load_recipe

MILLION = 1_000_000


class PrintedCount(NamedTuple):
    """The number of parameters in a paper, and ours by arithmetic."""

    printed: int
    source: str
    derived: int
    reason: str | None = None  # why they differ by more than 1 %


def num_parameters(name: str) -> int:
    """Count the parameters of a recipe's model without allocating them."""
    recipe = load_recipe(name)
    config = recipe.tokenizers
    sides = [config.tokenizer] * 2 if config.type == "shared" else [config.source, config.target]
    source_size, target_size = (
        side.vocab_size if side.type == "subword" else side.max_vocab_size for side in sides
    )
    with torch.device("meta"):
        model = recipe.model.build(source_vocab_size=source_size, target_vocab_size=target_size)
    return sum(parameter.numel() for parameter in model.parameters())


def linear(inputs: int, outputs: int, *, bias: bool = True) -> int:
    """W and b."""
    return inputs * outputs + bias * outputs


def lstm(inputs: int, size: int) -> int:
    """W, U and, as in torch, two biases of each of four gates."""
    return 4 * size * (inputs + size + 2)


def projected_lstm(inputs: int, cell_state_size: int, size: int) -> int:
    """The same with a larger cell state, and the projection of the output."""
    return 4 * cell_state_size * (inputs + size + 2) + cell_state_size * size


def transformer_layer(size: int, ffn: int, *, num_attentions: int, bias: bool) -> int:
    """Four matrices per attention, the feed-forward network, and a norm for each of them."""
    attention = 4 * linear(size, size, bias=bias)
    norms = (num_attentions + 1) * 2 * size
    return num_attentions * attention + linear(size, ffn) + linear(ffn, size) + norms


def transformer(vocab_size: int, size: int, ffn: int) -> int:
    """Six layers on each side, and one matrix for embeddings and output."""
    encoder = 6 * transformer_layer(size, ffn, num_attentions=1, bias=False)
    decoder = 6 * transformer_layer(size, ffn, num_attentions=2, bias=False)
    return vocab_size * size + encoder + decoder


def language_model(vocab_size: int) -> int:
    """Embeddings of tokens and 512 positions, and 12 layers of 768 units."""
    layers = 12 * transformer_layer(768, 3072, num_attentions=1, bias=True)
    return (vocab_size + 512) * 768 + layers


BERT = (
    language_model(30_522 + 1)  # a row more, for the mask symbol
    + 2 * 768  # segments
    + 2 * 768  # norm of the embeddings
    + linear(768, 768)
    + 2 * 768  # the layer before the output, and its norm
    + 30_523  # bias of the output
    + linear(768, 768)
    + linear(768, 2)  # next-sentence prediction
)
GNMT = (
    2 * 32_000 * 1024  # embeddings of both sides
    + 2 * lstm(1024, 512)  # the bottom layer of the encoder
    + 7 * lstm(1024, 1024)
    + 8 * lstm(2048, 1024)  # the decoder, whose layers all read the context
    + 2 * 1024 * 1024
    + 1024  # attention
    + linear(1024, 32_000)
)
EXPERTS = (
    2048 * 2 * 512 * 2048
    + (64 + 64 * 32) * (512 + 1)  # gates of 64 groups and of 32 experts in each, with thresholds
)
MOE = (
    2 * 32_000 * 512  # embeddings of both sides
    + 2 * projected_lstm(512, 2048, 256)
    + 2 * projected_lstm(512, 2048, 512)  # the encoder
    + 2 * projected_lstm(1024, 2048, 512)  # the decoder, whose layers all read the context
    + 2 * EXPERTS  # of both sides
    + 2 * 512 * 512
    + 512  # attention
    + linear(512, 32_000)
)
POINTER_GATE = linear(512 + 256 + 256 + 128, 1)  # context, hidden and cell state, input
COVERAGE_WEIGHTS = 512
SEE = (
    50_000 * 128  # embeddings of both sides
    + 2 * lstm(128, 256)
    + linear(512, 256)  # the first state of the decoder
    + lstm(128 + 256, 256)  # the paper has a matrix more, which reduces its input
    + linear(512 + 256, 256)
    + linear(512, 512)
    + 256 * 512
    + 512  # attention
    + COVERAGE_WEIGHTS
    + linear(256, 50_000)
)
PRINTED_COUNTS = {
    "pointer-generator-2017": PrintedCount(
        21_499_600 + 1_153 + 512, "section 5", SEE + POINTER_GATE
    ),
    "see-2017-coverage": PrintedCount(21_499_600 + 512, "section 5", SEE),
    "transformer-2017-base": PrintedCount(
        65 * MILLION,
        "table 3",
        transformer(37_000, 512, 2048),
        "65 million would need 40,700 tokens; section 5.1 has about 37,000",
    ),
    "transformer-2017-big": PrintedCount(213 * MILLION, "table 3", transformer(37_000, 1024, 4096)),
    "gpt-2018": PrintedCount(117 * MILLION, "Radford et al. 2019, table 2", language_model(40_478)),
    "bert-2018": PrintedCount(110 * MILLION, "section 3", BERT),
    "seq2seq-2014": PrintedCount(
        384 * MILLION,
        "section 3.4",
        240_000 * 1000 + linear(1000, 80_000) + 8 * lstm(1000, 1000),
    ),
    "gnmt-2016": PrintedCount(
        278 * MILLION,
        "Shazeer et al. 2017, table 3",
        GNMT,
        "the bottom layer has 512 units per direction here, and 1024 in the paper",
    ),
    "moe-2017": PrintedCount(8_700 * MILLION, "tables 2 and 3", MOE),
}
