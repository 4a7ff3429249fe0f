"""Vocabularies, the special tokens, and safe reading of a tokenizer's files.

Special tokens are ids without a spelling, so no text can be mistaken for one. A run folder may
come from elsewhere: its files are bounded in size before they are read, and checked.
Invariant: equal counts give equal vocabularies, in whatever order tokens were counted.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Self

from heedful.errors import CorruptRunError
from heedful.storage.json_files import MAX_BYTES, parse_json  # a million words: 16 MiB

PAD, UNK, BOS, EOS = 0, 1, 2, 3
SPECIAL_TOKENS = ("<pad>", "<unk>", "<s>", "</s>")
"""How special tokens are displayed; nothing parses these names."""
NUM_SPECIAL_TOKENS = len(SPECIAL_TOKENS)


class Vocabulary:
    """Distinct tokens in the order of their ids, which follow those of the special tokens."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self.tokens = tuple(tokens)
        self._ids = {token: index for index, token in enumerate(self.tokens, NUM_SPECIAL_TOKENS)}
        assert len(self._ids) == len(self.tokens), "duplicate token"

    @classmethod
    def from_counts(
        cls, counts: Mapping[str, int], *, min_count: int = 1, max_size: int | None = None
    ) -> Self:
        """Keep the most frequent tokens, then by code point; `max_size` counts special tokens."""
        frequent = (token for token, count in counts.items() if count >= min_count)
        ranked = sorted(frequent, key=lambda token: (-counts[token], token))
        return cls(ranked if max_size is None else ranked[: max(0, max_size - NUM_SPECIAL_TOKENS)])

    def tokens_to_ids(
        self, tokens: Iterable[str], extended_ids: Mapping[str, int] | None = None
    ) -> list[int]:
        """Return the id of each token; `UNK` without one here and in `extended_ids`."""
        get_id = self._ids.get
        if not extended_ids:
            return [get_id(token, UNK) for token in tokens]
        return [get_id(token) or extended_ids.get(token, UNK) for token in tokens]

    def __contains__(self, token: str) -> bool:
        return token in self._ids

    def __len__(self) -> int:
        return NUM_SPECIAL_TOKENS + len(self.tokens)

    def save(self, path: Path) -> None:
        """Write the tokens as JSON, one per line."""
        text = json.dumps({"tokens": self.tokens}, ensure_ascii=False, indent=0)
        path.write_text(text + "\n", encoding="utf-8", newline="\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of `save`."""
        try:
            contents = parse_json(read_saved_file(path))
        except ValueError:
            raise corrupt_file_error(path, "not JSON") from None
        tokens = contents.get("tokens") if isinstance(contents, dict) else None
        if not (isinstance(tokens, list) and all(isinstance(token, str) for token in tokens)):
            raise corrupt_file_error(path, "contains no list of tokens")
        if len(set(tokens)) < len(tokens):
            raise corrupt_file_error(path, "contains a token twice")
        return cls(tokens)


def read_saved_file(path: Path) -> bytes:
    """Read a file of a tokenizer; raise CorruptRunError if it is missing or too large."""
    try:
        size = path.stat().st_size
        if size > MAX_BYTES:
            raise corrupt_file_error(path, f"{size} bytes, more than the maximum of {MAX_BYTES}")
        return path.read_bytes()
    except OSError as error:
        raise corrupt_file_error(path, f"cannot be read ({error.strerror})") from None


def corrupt_file_error(path: Path, message: str) -> CorruptRunError:
    """Return the error for a file that is not as it was saved."""
    return CorruptRunError(str(path), message, "restore the file from a copy, or train again")
