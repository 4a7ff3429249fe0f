"""Workers cut what one process would cut, in order; they say what is wrong, and they end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from heedful.data.chunk_tokenizer import ChunkTokenizer, TextChunk, TokenizationJob
from heedful.data.filtering import FilterConfig
from heedful.data.tokenization_pool import available_cores, tokenization_pool
from heedful.errors import DataError
from heedful.tokenization.tokenizer import WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig

TOKENIZER_FOLDER = SeparateTokenizersConfig(
    source=WordTokenizerConfig(), target=WordTokenizerConfig()
)


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    TOKENIZER_FOLDER.train(["a b c d"], ["x y z"]).save(folder)
    return TokenizationJob(
        tokenizers=TOKENIZER_FOLDER,
        folder=folder,
        filtering=FilterConfig(max_length=3),
        data_name="here",
    )


def chunks(count, text="a b"):
    for number in range(count):
        pairs = [[text, "x\n"], ["a b c d", "x"], ["\u2028 a", "z"], ["", "y"], ["a", "x"]]
        texts = json.dumps(pairs[: 1 + number % 5], ensure_ascii=False).encode()
        yield TextChunk(texts, number, [0] if number % 2 else [], [4])


def told(cut):
    return cut.values.dtype, cut.values.tolist(), cut.lengths.tolist(), cut.metadata


def test_two_workers_cut_as_one_process_does_in_the_same_order(job):
    alone = list(map(ChunkTokenizer(job), chunks(23)))
    with tokenization_pool(job, 2) as cut:
        together = list(cut(chunks(23)))
    assert list(map(told, together)) == list(map(told, alone))


def test_what_is_wrong_with_a_pair_is_said_as_by_one_process(job):
    strict = job.model_copy(update={"filtering": FilterConfig(on_empty="error")})
    with pytest.raises(DataError) as caught, tokenization_pool(strict, 2) as cut:
        list(cut(chunks(9)))
    # 3 come before its chunk, of which one is held out; it is the third of the others.
    assert str(caught.value) == (
        "here, pair 6: the source is empty\n  fix the pair, or set `on_empty: drop`"
    )


def test_a_worker_that_is_killed_is_told_of(job):
    with tokenization_pool(job, 2) as cut:
        cuts = cut(chunks(10**6))
        next(cuts)
        os.kill(next(filter(is_worker, children())), signal.SIGKILL)
        with pytest.raises(DataError) as caught:
            list(cuts)
    assert str(caught.value) == (
        "workers: a process that cuts texts was ended by signal 9\n"
        "  give the same command again: it goes on; if memory ran out, with fewer --workers"
    )


def is_worker(pid):
    return "heedful.data.tokenization_pool" in Path(f"/proc/{pid}/cmdline").read_text()


def children(parent=None):
    path = f"/proc/{parent or os.getpid()}/task/{parent or os.getpid()}/children"
    return list(map(int, Path(path).read_text().split()))


def test_workers_end_with_whoever_started_them_even_if_that_is_killed(job):
    code = (
        "import sys, itertools\n"
        "from heedful.data.chunk_tokenizer import Chunk, Job\n"
        "from heedful.data.tokenization_pool import cutting\n"
        "with cutting(Job.model_validate_json(sys.argv[1]), 2) as cut:\n"
        "    for _ in cut(Chunk(b'[]') for _ in itertools.count()):\n"
        "        print('cut', flush=True)\n"
    )
    command = [sys.executable, "-c", code, job.model_dump_json()]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        workers = children(process.pid)
        assert len(workers) == 2
        process.kill()
    end = time.monotonic() + 20
    while any(map(is_running, workers)):
        assert time.monotonic() < end, "they are still there"
        time.sleep(0.05)


def is_running(number):
    try:
        return "State:\tZ" not in Path(f"/proc/{number}/status").read_text()
    except FileNotFoundError:
        return False


def test_workers_import_no_torch(job):
    code = "import sys, heedful.data.tokenization_pool; print('torch' in sys.modules)"
    command = [sys.executable, "-c", code]
    outcome = subprocess.run(command, capture_output=True, text=True, check=True)
    assert outcome.stdout == "False\n"
    assert available_cores() >= 1
