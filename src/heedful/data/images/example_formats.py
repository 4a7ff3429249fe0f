"""The formats of examples that are images: with captions, or with labels.

Images have no tokens, so they can be neither prepared nor cached. Invariant: an image is either
trained on or validated on, with all of its captions.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from heedful.data.shuffling import permute_indices
from heedful.data.text.example_formats import PairFormat, Rows, SeriesFormat
from heedful.data.text.held_out import HELD_OUT_DIVISOR, MAX_HELD_OUT_LINES, DevSplit
from heedful.data.text.pair_dataset import Pair, TextHashes, hash_texts
from heedful.errors import DataError, check
from heedful.tokenization.tokenizer_pair import TokenizerPair


class CaptionFormat(PairFormat):
    """Images with one or more captions; its pairs are a number of an image and one caption."""

    name = "images"
    description = "captioned images"
    has_tokens = False
    dev_options = "--dev-captions FILE"
    num_unshared_sides = 1

    @override
    def hash(self, examples: Sequence[Any]) -> TextHashes:
        return hash_texts([Pair(str(example.image), "") for example in examples])

    @override
    def tokenizer_texts(self, examples: Sequence[Any]) -> tuple[list[str], list[str]]:
        return [], [caption for example in examples for caption in example.captions]

    @override
    def encode(self, examples: Sequence[Pair], tokenizers: TokenizerPair) -> tuple[Rows, Rows]:
        targets = tokenizers.target.encode_batch([pair.target for pair in examples])
        return [[int(pair.source)] for pair in examples], targets

    @override
    def counted(self, sources: Rows, targets: Rows) -> tuple[Rows, Rows]:
        return targets, targets


class LabeledImageFormat(SeriesFormat):
    """Images with labels, in any order."""

    name = "labeled images"
    description = "labeled images"

    @override
    def choose_held_out(self, hashes: TextHashes, *, seed: int, location: str) -> DevSplit:
        message = "one image is not enough: one is needed to train on and one to validate on"
        hint = "give more images, or others to validate on: --dev-digits FILE"
        check(len(hashes) >= 2, location, message, hint, DataError)
        num_held_out = max(1, min(MAX_HELD_OUT_LINES, len(hashes) // HELD_OUT_DIVISOR))
        rows = permute_indices(np.arange(num_held_out), len(hashes), seed=seed, epoch=0)
        return DevSplit(sorted(rows.tolist()))


CAPTIONED_IMAGES, LABELED_IMAGES = CaptionFormat(), LabeledImageFormat()
