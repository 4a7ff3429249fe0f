"""The tokenizer of SMILES, the notation of molecules as text.

Invariant: the tokens of a text concatenate to it, also where it is not SMILES: a character that the
notation does not have is a token of its own.
"""

from collections.abc import Iterable, Iterator
from typing import Literal

from typing_extensions import override

from heedful.errors import DataError
from heedful.tokenization.standalone import SMILES_TOKEN, split_smiles
from heedful.tokenization.tokenizer import VocabularyTokenizer, VocabularyTokenizerConfig


class SMILESTokenizer(VocabularyTokenizer):
    """Atoms, bonds, branches and rings by the regular expression of Schwaller et al. 2019.

    "C[C@H](N)Cl" is C, [C@H], (, N, ), Cl.
    """

    @staticmethod
    @override
    def tokenize(text: str) -> list[str]:
        return split_smiles(text)


class SMILESTokenizerConfig(VocabularyTokenizerConfig):
    """Atoms and other signs of molecules in SMILES notation (Schwaller et al. 2019)."""

    tokenizer_class = SMILESTokenizer
    type: Literal["smiles"] = "smiles"
    strict: bool = True
    """Whether other characters in the training texts are an error, as in the authors' code; if not,
    each is a token."""

    @override
    def train(self, texts: Iterable[str]) -> VocabularyTokenizer:
        return super().train(self._check(texts) if self.strict else texts)

    def _check(self, texts: Iterable[str]) -> Iterator[str]:
        for number, text in enumerate(texts, start=1):
            for match in SMILES_TOKEN.finditer(self.normalization.normalize(text)):
                if match[1] is None:
                    where = f"character {match.start() + 1} is {match[0]!r}"
                    hint = "remove it, or set `strict: false` in the tokenizer"
                    raise DataError(f"text {number}", f"{where}, which SMILES does not have", hint)
            yield text
