"""Initial embeddings from the text files of word2vec, GloVe and fastText.

A line is a token and its vector; word2vec and fastText begin with a line "tokens dimension".
Invariant: an embedded token equals its vector in the file; tokens without one keep their own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from heedful.data.text_files import nonempty_lines
from heedful.errors import DataError, check, format_count
from heedful.layers.embeddings import TokenEmbedding
from heedful.storage.state_dict import gather_shards, shard_like
from heedful.tokenization.tokenizer import Tokenizer
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS

_MODULES = {
    "source": ("encoder.embedding", "source_embedding", "embedding"),
    "target": ("decoder.embedding", "target_embedding", "embedding"),
}
_SUBWORD_MARK = "\u2581"


class TokenVector(NamedTuple):
    """A line of an embedding file."""

    token: str
    vector: NDArray[np.float32]


def check_embedding_file(path: str) -> None:
    """Raise DataError for a file that cannot be read."""
    _check_is_text(path)
    next(nonempty_lines(path), None)


def _check_is_text(path: str) -> None:
    message = "binary files of word2vec are not read"
    hint = "save it as text, with gensim: save_word2vec_format(path, binary=False)"
    check(".bin" not in Path(path).suffixes, path, message, hint, DataError)


def load_embedding_file(
    model: nn.Module, name: str, path: str, tokenizer: Tokenizer, log: Callable[[str], object]
) -> None:
    """Replace the embeddings of all tokens that a file has, and log how many these are.

    `name` is "source" or "target".
    """
    setting = f"training.init_embeddings.{name}"
    embedding = _find_embedding(model, name, setting)
    size = min(len(tokenizer), embedding.embedding.num_embeddings)
    ids = range(NUM_SPECIAL_TOKENS, size)
    num_matches = _load(
        embedding, path, dict(zip(ids, tokenizer.ids_to_tokens(ids), strict=True)), setting
    )
    counts = f"vectors of {num_matches:,} of {len(ids):,} {name} tokens"
    log(f"embeddings: {path}: {counts} ({num_matches / len(ids):.1%})")


def read_embedding_file(
    path: str, size: int, is_in_vocabulary: Callable[[str], bool], setting: str
) -> Iterator[TokenVector]:
    """Yield the vectors of tokens of the vocabulary; `size` is the expected dimension."""
    _check_is_text(path)
    for number, line in enumerate(nonempty_lines(path), start=1):
        token, _, numbers = line.rstrip(" ").partition(" ")
        if number == 1:
            header_size = _header_size(line)
            file_size = len(numbers.split(" ")) if header_size is None else header_size
            message = f"is {path}, with vectors of size {file_size}, but embeddings have {size}"
            check(file_size == size, setting, message, f"set their size to {file_size}")
            if header_size is not None:
                continue
        # GloVe 840B has tokens with spaces, which a tokenizer does not produce.
        if is_in_vocabulary(token) and numbers.count(" ") <= size - 1:
            yield TokenVector(token, _parse_vector(numbers, size, f"{path}:{number}"))


def _header_size(line: str) -> int | None:
    """Return the dimension in the first line of word2vec and fastText; None if it has none."""
    fields = line.split()
    return int(fields[1]) if len(fields) == 2 and all(map(str.isdecimal, fields)) else None


def _parse_vector(numbers: str, size: int, location: str) -> NDArray[np.float32]:
    try:
        vector = np.array(numbers.split(" "), dtype=np.float32)
    except ValueError:
        vector = np.empty(0, dtype=np.float32)
    message = f"is no line of a token and {size} finite numbers"
    hint = "give a text file of word2vec, GloVe or fastText"
    check(len(vector) == size and np.isfinite(vector).all(), location, message, hint, DataError)
    return vector


def _find_embedding(model: nn.Module, name: str, setting: str) -> TokenEmbedding:
    modules = dict(model.named_modules(remove_duplicate=False))
    embedding = next((modules[path] for path in _MODULES[name] if path in modules), None)
    message = f"this model has no {name} embeddings of its own"
    is_valid = isinstance(getattr(embedding, "embedding", None), nn.Embedding)
    check(is_valid, setting, message, "remove it")
    assert isinstance(embedding, TokenEmbedding)
    return embedding


@torch.no_grad()
def _load(embedding: TokenEmbedding, path: str, tokens: Mapping[int, str], setting: str) -> int:
    """Copy vectors into an embedding; return the number of tokens that have one."""
    spellings = {token_id: _spellings(token) for token_id, token in tokens.items()}
    vocabulary = {spelling for choices in spellings.values() for spelling in choices}
    weight = embedding.embedding.weight
    vectors: dict[str, NDArray[np.float32]] = {}
    for token, vector in read_embedding_file(
        path, weight.size(1), vocabulary.__contains__, setting
    ):
        vectors.setdefault(token, vector)
    table, num_matches = gather_shards(weight).clone(), 0
    for token_id, choices in spellings.items():
        best = next((vectors[choice] for choice in choices if choice in vectors), None)
        if best is not None:
            table[token_id] = torch.from_numpy(best).to(table) / embedding.scale
            num_matches += 1
    weight.copy_(shard_like(table, weight))
    example = next(iter(tokens.values()), "")
    message = f"{path} has none of the {format_count(len(tokens), 'token')}, such as {example!r}"
    check(num_matches, setting, message, "use a tokenizer of words, or other vectors")
    return num_matches


def _spellings(token: str) -> Sequence[str]:
    """Return what to look up, in order: the token, without the mark of a space, in lower case."""
    bare = token.removeprefix(_SUBWORD_MARK)
    return list(dict.fromkeys([token, bare, bare.lower()]))
