"""Tokenization in worker processes gives what one process gives."""

import json
from dataclasses import replace

import pytest

from heedful.data.text.example_formats import PAIRS, TextChunk, TokenizationJob
from heedful.data.text.filtering import FilterConfig
from heedful.data.text.pair_files import TSVConfig
from heedful.errors import DataError
from heedful.parallel import worker_pool
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig

TOKENIZERS = SeparateTokenizersConfig(source=WordTokenizerConfig(), target=WordTokenizerConfig())


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizers")
    TOKENIZERS.train(["a b c d"], ["x y z"]).save(folder)
    return TokenizationJob(
        tokenizers=TOKENIZERS,
        folder=folder,
        example_format=PAIRS,
        filtering=FilterConfig(max_length=3),
        sources=[TSVConfig(path="a.tsv"), TSVConfig(path="b.tsv")],
    )


def chunks(count):
    for index in range(count):
        pairs = [["a b", "x\n"], ["a b c d", "x"], ["\u2028 a", "z"], ["", "y"], ["a", "x"]]
        texts = json.dumps(pairs[: 1 + index % 5], ensure_ascii=False).encode()
        yield TextChunk(texts, 1, 10 * index, index, [0] if index % 2 else [], [4])


def as_values(chunk):
    return chunk.values.dtype, chunk.values.tolist(), chunk.lengths.tolist(), chunk.metadata


def test_two_workers_tokenize_as_one_process_does(job):
    expected = list(map(job.setup(is_shared=False), chunks(23)))
    with worker_pool(job, num_workers=2) as tokenize:
        results = list(tokenize(chunks(23)))
    assert list(map(as_values, results)) == list(map(as_values, expected))


def test_error_of_a_worker_names_the_pair(job):
    strict = replace(job, filtering=FilterConfig(on_empty="error"))
    with pytest.raises(DataError) as caught, worker_pool(strict, num_workers=2) as tokenize:
        list(tokenize(chunks(9)))
    # It is the fourth pair of the fourth chunk, of which each begins ten rows after the one before.
    assert caught.value.location == "b.tsv, line 34"
