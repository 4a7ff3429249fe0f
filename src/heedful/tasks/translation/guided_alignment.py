"""The links of guided alignment: from a file, or from a word aligner of the training data."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from heedful.aligners.links import Link, parse_alignment
from heedful.aligners.training import ParallelTokens, align_corpus
from heedful.data.text.batching import collate_pairs
from heedful.data.text.pair_dataset import InMemoryPairDataset, Pair
from heedful.data.text_files import display_name, read_lines
from heedful.decoding.translation import TokenTextMapper, whitespace_words, word_ids
from heedful.errors import DataError, check, format_count
from heedful.inspection.attention_layers import NO_WORD_ID
from heedful.tasks.pair_data import PairDataModule
from heedful.tokenization.tokenizer_pair import TokenizerPair
from heedful.training.guided_alignment import GuidedAlignmentConfig, LinkTable, hash_pairs

_LOCATION = "training.guided_alignment"
_CHUNK_SIZE = 1024
Log = Callable[[str], None]


def build_link_table(
    config: GuidedAlignmentConfig, data_module: PairDataModule, log: Log
) -> LinkTable:
    """Return the links of the training pairs."""
    has_regularizers = any(data_module.recipe.tokenizers.build_regularizers(data_module.tokenizers))
    message = "does not work with subword regularization, which changes the tokens of each epoch"
    hint = "remove subword_regularization from the tokenizers"
    check(not has_regularizers, _LOCATION, message, hint)
    if config.links is None:
        rows, links = _align_tokens(config, data_module, log)
    else:
        rows, links = _read_links(config.links, data_module)
    num_links, pairs = sum(map(len, links)), format_count(len(links), "pair")
    log(f"guided alignment: {format_count(num_links, 'link')} between the tokens of {pairs}")
    return LinkTable.from_links(_hash_rows(rows), links)


def _hash_rows(rows: Sequence[tuple[Sequence[int], Sequence[int]]]) -> np.ndarray:
    starts = range(0, len(rows), _CHUNK_SIZE)
    chunks = [hash_pairs(collate_pairs(rows[start : start + _CHUNK_SIZE])) for start in starts]
    return np.concatenate([np.empty(0, np.uint64), *chunks])


def _align_tokens(
    config: GuidedAlignmentConfig, data_module: PairDataModule, log: Log
) -> tuple[list[tuple[list[int], list[int]]], list[set[Link]]]:
    dataset = data_module.train.for_epoch(0)
    pairs: InMemoryPairDataset = dataset.select(np.arange(len(dataset)))
    log(f"guided alignment: aligning {format_count(len(pairs), 'pair')} ({config.aligner.type})")
    links = align_corpus(
        config.aligner,
        ParallelTokens(pairs.source, pairs.target),
        symmetrization=config.symmetrization,
        on_iteration=lambda progress: log(f"  {progress}"),
    )
    rows = [(pairs.source.get(row), pairs.target.get(row)) for row in range(len(pairs))]
    return rows, links


def _read_links(
    path: str, data_module: PairDataModule
) -> tuple[list[tuple[list[int], list[int]]], list[set[Link]]]:
    source = data_module.recipe.data.train
    message = f"links belong to the pairs of one text, and data.train is '{source.type}'"
    check(hasattr(source, "stream"), f"{_LOCATION}.links", message, "remove it, or name one text")
    lines, pairs = list(read_lines(path)), source.read()
    message = f"{format_count(len(lines), 'line')} of links, but {source.describe()} has "
    message += format_count(len(pairs), "pair")
    hint = "line n of the links must belong to pair n"
    check(len(lines) == len(pairs), display_name(path), message, hint, DataError)
    rows: list[tuple[list[int], list[int]]] = []
    links: list[set[Link]] = []
    numbered = enumerate(_tokenize(pairs, data_module.tokenizers), start=1)
    for (number, (row, word_rows)), line in zip(numbered, lines, strict=True):
        rows.append(row)
        location = f"{display_name(path)}:{number}"
        words = parse_alignment(line, location=location).possible
        links.append(spread_links(words, *word_rows, location=location))
    return rows, links


def _tokenize(
    pairs: Iterable[Pair], tokenizers: TokenizerPair
) -> Iterator[tuple[tuple[list[int], list[int]], tuple[list[int], list[int]]]]:
    """Yield the token ids of both sides, and the word that each token belongs to."""
    mappers = [TokenTextMapper(tokenizer) for tokenizer in tokenizers]
    stream = iter(pairs)
    while chunk := list(islice(stream, _CHUNK_SIZE)):
        sides = []
        for mapper, texts in zip(mappers, zip(*chunk, strict=True), strict=True):
            rows = mapper.tokenizer.encode_batch(texts)
            parts = map(mapper.source_token_texts, rows, texts)
            sides.append([(row, _word_ids(part)) for row, part in zip(rows, parts, strict=True)])
        for (source, source_words), (target, target_words) in zip(*sides, strict=True):
            yield (source, target), (source_words, target_words)


def _word_ids(token_texts: Sequence[str]) -> list[int]:
    return word_ids(token_texts, whitespace_words("".join(token_texts)))


def spread_links(
    links: Iterable[Link],
    source_word_ids: Sequence[int],
    target_word_ids: Sequence[int],
    *,
    location: str = "links",
) -> set[Link]:
    """Return the links between all tokens of linked words."""
    pieces: tuple[dict[int, list[int]], dict[int, list[int]]] = ({}, {})
    for words, ids in zip(pieces, (source_word_ids, target_word_ids), strict=True):
        for token, word in enumerate(ids):
            if word != NO_WORD_ID:
                words.setdefault(word, []).append(token)
    result = set()
    for link in links:
        for name, word, words in zip(("source", "target"), link, pieces, strict=True):
            message = f"a link to {name} word {word}, but there are {len(words)}, counted from 0"
            hint = "words are separated by white space, in the texts and for the aligner"
            check(word in words, location, message, hint, DataError)
        result |= {Link(s, t) for s in pieces[0][link.source] for t in pieces[1][link.target]}
    return result
