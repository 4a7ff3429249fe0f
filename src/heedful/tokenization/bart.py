"""The tokenizer of BART: byte-level BPE with <s> before each text (Lewis et al. 2020).

BART reads and writes <s> before a text and </s>, which is EOS here, after it. Invariant: a text has
the ids that Hugging Face gives it, but no text is encoded as a special token, whatever it spells.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from typing_extensions import override

from heedful.tokenization.byte_level_bpe import (
    MERGES_FILE,
    ByteLevelBPETokenizer,
    ByteLevelBPETokenizerConfig,
    Merge,
    read_merges,
)
from heedful.tokenization.standalone import VOCABULARY_FILE
from heedful.tokenization.vocabulary import Vocabulary


class BartTokenizer(ByteLevelBPETokenizer):
    """Byte-level BPE with a token before each text; special tokens are decoded as nothing."""

    config: "BartTokenizerConfig"

    def __init__(
        self, vocabulary: Vocabulary, merges: Sequence[Merge], config: "BartTokenizerConfig"
    ) -> None:
        super().__init__(vocabulary, merges, config)
        names = (config.prefix_token, *config.special_tokens)
        ids = vocabulary.tokens_to_ids(names)
        self._prefix_id, self._special_ids = ids[0], {*ids}

    @override
    def encode_phrase(self, text: str) -> list[int]:
        return self.encode(text)[1:]

    @override
    def _encode(self, texts: list[str]) -> list[list[int]]:
        return [[self._prefix_id, *ids] if ids else [] for ids in super()._encode(texts)]

    @override
    def _spell(self, token: int) -> bytes:
        return b"" if token in self._special_ids else super()._spell(token)


class BartTokenizerConfig(ByteLevelBPETokenizerConfig):
    """Byte-level BPE of an imported BART model, with <s> before each text."""

    type: Literal["bart"] = "bart"  # type: ignore[assignment]
    prefix_token: str = "<s>"
    """Token before each text."""
    special_tokens: tuple[str, ...] = ()
    """Further tokens that are decoded as nothing, such as <mask>."""

    @override
    def load(self, folder: Path) -> BartTokenizer:
        vocabulary = Vocabulary.load(folder / VOCABULARY_FILE)
        return BartTokenizer(vocabulary, read_merges(folder / MERGES_FILE), self)
