"""Stored: how a tokenizer's file is read back.

A run folder may come from elsewhere, so its files are data to be checked: bounded in size
before they are read, and named in the error when they are not what was saved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from heedful.errors import CorruptRunError

MAX_BYTES = 64 * 2**20
"""A vocabulary of a million words takes about 16 MiB; a larger file is no vocabulary of ours."""


def read_saved_file(path: Path) -> bytes:
    """Read a file of a run folder, refusing one that is missing or too large to be true."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise corrupt_file_error(
                path, f"{size} bytes, more than the {MAX_BYTES} that are ever written"
            )
        return path.read_bytes()
    except OSError as error:
        raise corrupt_file_error(path, f"cannot be read ({error.strerror})") from None


def corrupt_file_error(path: Path, message: str) -> CorruptRunError:
    """Make the error for a file that is not as it was saved."""
    return CorruptRunError(str(path), message, "restore the file from a copy, or train again")


# Vocabulary: which tokens have an id, and which id it is.
#
# The special symbols are ids and nothing else: they have no spelling, so no text can be mistaken
# for one. Equal counts give equal vocabularies, in whatever order the counting met the tokens.

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""How the special symbols are shown to people; nothing reads these names back."""
NUM_SPECIAL_TOKENS = len(SPECIAL_TOKENS)


class Vocabulary:
    """Distinct tokens in the order of their ids, which follow those of the special symbols."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = tuple(tokens)
        self._ids = {token: number for number, token in enumerate(self.tokens, NUM_SPECIAL_TOKENS)}
        assert len(self._ids) == len(self.tokens), "a token stands twice"

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], *, min_count: int = 1, max_size: int | None = None
    ) -> Vocabulary:
        """Keep the most frequent tokens; of equally frequent ones, the first by code points.

        `max_vocab_size` bounds the whole, special symbols included.
        """
        frequent = (token for token, count in counts.items() if count >= min_count)
        ranked = sorted(frequent, key=lambda token: (-counts[token], token))
        return cls(ranked if max_size is None else ranked[: max(0, max_size - NUM_SPECIAL_TOKENS)])

    def tokens_to_ids(self, tokens: Iterable[str]) -> list[int]:
        """Say the id of each token; `UNK` where it has none."""
        find = self._ids.get
        return [find(token, UNK) for token in tokens]

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def __len__(self) -> int:
        return NUM_SPECIAL_TOKENS + len(self.tokens)

    def save(self, path: Path) -> None:
        """Write the tokens as JSON, one on a line."""
        text = json.dumps({"tokens": self.tokens}, ensure_ascii=False, indent=0)
        path.write_text(text + "\n", encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read what `save` wrote."""
        try:
            stored = json.loads(read_saved_file(path))
        except (ValueError, RecursionError):
            raise corrupt_file_error(path, "not JSON") from None
        tokens = stored.get("tokens") if isinstance(stored, dict) else None
        if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
            raise corrupt_file_error(path, "no list of tokens in it")
        if len(set(tokens)) < len(tokens):
            raise corrupt_file_error(path, "a token stands twice in it")
        return cls(tokens)
