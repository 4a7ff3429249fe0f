"""Workers: how are chunks cut by several processes at once?

A worker is this module run by itself: it reads chunks from its standard input and writes what
they became to its standard output, until the input ends. So it ends with whoever started it,
however that ended, and it imports nothing of the script that started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from queue import SimpleQueue
from typing import IO, Any

import numpy as np

from heedful import errors
from heedful.data.chunk_tokenizer import ChunkTokenizer, TextChunk, TokenizationJob
from heedful.data.examples import TokenizedChunk
from heedful.errors import DataError, HeedfulError

_LENGTHS = np.dtype("<i8")


def available_cores() -> int:
    """How many workers can be busy at once."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not every system says what a process may use
        return os.cpu_count() or 1


@contextmanager
def tokenization_pool(
    job: TokenizationJob, workers: int
) -> Iterator[Callable[[Iterable[TextChunk]], Iterator[TokenizedChunk]]]:
    """Give what cuts chunks, in the order in which they come, by this many processes."""
    if workers == 1:
        cutter = ChunkTokenizer(job)
        yield lambda chunks: map(cutter, chunks)
        return
    with ExitStack() as stack:
        idle = SimpleQueue[_Worker]()
        for _ in range(workers):
            idle.put(stack.enter_context(_start_worker(job)))
        threads = ThreadPoolExecutor(workers)
        stack.callback(threads.shutdown, cancel_futures=True)
        yield lambda chunks: _map_in_order(chunks, threads, idle, max_pending=2 * workers)


def _map_in_order(
    chunks: Iterable[TextChunk],
    threads: ThreadPoolExecutor,
    idle: SimpleQueue[_Worker],
    *,
    max_pending: int,
) -> Iterator[TokenizedChunk]:
    def cut(chunk: TextChunk) -> TokenizedChunk:
        worker = idle.get()
        try:
            return worker.tokenize(chunk)
        finally:
            idle.put(worker)

    waiting = deque[Future[TokenizedChunk]]()
    for chunk in chunks:
        waiting.append(threads.submit(cut, chunk))
        if len(waiting) > max_pending:
            yield waiting.popleft().result()
    while waiting:
        yield waiting.popleft().result()


class _Worker:
    """The other end of a worker's pipes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin
        assert process.stdout
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout

    def tokenize(self, chunk: TextChunk) -> TokenizedChunk:
        """Have a chunk cut."""
        try:
            _write_chunk(self._stdin, chunk)
            return _read_tokenized(self._stdout)
        except (BrokenPipeError, EOFError):
            raise _worker_died_error(self._process.wait()) from None


@contextmanager
def _start_worker(job: TokenizationJob) -> Iterator[_Worker]:
    command = [sys.executable, "-m", __spec__.name, job.model_dump_json()]
    # In a session of its own: an interrupt from the keyboard is for whoever started it.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        yield _Worker(process)
    finally:
        process.kill()
        process.communicate()


def _worker_died_error(code: int) -> DataError:
    how = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
    return DataError(
        "workers",
        f"a process that cuts texts {how}",
        "give the same command again: it goes on; if memory ran out, with fewer --num-workers",
    )


def _write_chunk(stream: IO[bytes], chunk: TextChunk) -> None:
    texts, first, held_out, repeated = chunk
    _write_header(stream, [len(texts), first, list(held_out), list(repeated)])
    stream.write(texts)
    stream.flush()


def _read_chunk(stream: IO[bytes]) -> TextChunk:
    size, first, held_out, repeated = _read_header(stream)
    return TextChunk(_read(stream, size), first, held_out, repeated)


def _write_tokenized(stream: IO[bytes], tokenized: TokenizedChunk) -> None:
    values = tokenized.values.astype(tokenized.values.dtype.newbyteorder("<"))
    lengths = tokenized.lengths.astype(_LENGTHS)
    _write_header(stream, [values.dtype.str, values.nbytes, lengths.nbytes, tokenized.metadata])
    stream.write(values.tobytes())
    stream.write(lengths.tobytes())
    stream.flush()


def _read_tokenized(stream: IO[bytes]) -> TokenizedChunk:
    header = _read_header(stream)
    if isinstance(header, dict):
        raise getattr(errors, header["class"])(*header["said"])
    kind, values, lengths, facts = header
    return TokenizedChunk(
        np.frombuffer(_read(stream, values), np.dtype(kind)),
        np.frombuffer(_read(stream, lengths), _LENGTHS),
        facts,
    )


def _write_error(stream: IO[bytes], error: HeedfulError) -> None:
    error_args = [error.location, error.message, error.hint]
    _write_header(stream, {"class": type(error).__name__, "said": error_args})
    stream.flush()


def _write_header(stream: IO[bytes], header: object) -> None:
    stream.write(json.dumps(header).encode() + b"\n")


def _read_header(stream: IO[bytes]) -> Any:
    line = stream.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    return json.loads(line)


def _read(stream: IO[bytes], size: int) -> bytes:
    found = stream.read(size)
    if len(found) < size:
        raise EOFError
    return found


def _serve_worker(requests: IO[bytes], responses: IO[bytes]) -> None:
    """Cut chunks until no more come."""
    cutter = ChunkTokenizer(TokenizationJob.model_validate_json(sys.argv[1]))
    while True:
        try:
            chunk = _read_chunk(requests)
        except EOFError:
            return
        try:
            cut = cutter(chunk)
        except HeedfulError as error:
            _write_error(responses, error)
        else:
            _write_tokenized(responses, cut)


if __name__ == "__main__":
    try:
        _serve_worker(sys.stdin.buffer, sys.stdout.buffer)
    except BrokenPipeError:
        os._exit(1)  # whoever asked is gone, and there is nobody to be told
