"""Streams whose clients read slowly."""

import asyncio

from heedful.serving.protocol import ItemError, StreamPart
from heedful.serving.supervisor import StreamQueue


async def read(queue, count):
    return [await queue.get() for _ in range(count)]


def test_parts_that_are_read_at_once_stay_apart():
    async def stream():
        queue, parts = StreamQueue(), []
        for text in "abc":
            queue.put_nowait(StreamPart(text))
            parts += await read(queue, 1)
        return parts

    assert [part.text for part in asyncio.run(stream())] == ["a", "b", "c"]


def test_parts_that_wait_are_joined_and_the_end_follows():
    async def stream():
        queue, end = StreamQueue(), StreamPart("!", {"text": "abc!"})
        for part in (*map(StreamPart, "abc"), end, None):
            queue.put_nowait(part)
        return await read(queue, 3)

    assert asyncio.run(stream()) == [StreamPart("abc"), StreamPart("!", {"text": "abc!"}), None]


def test_error_comes_after_the_text_before_it():
    async def stream():
        queue, error = StreamQueue(), ItemError(500, "failed")
        for part in (StreamPart("a"), StreamPart("b"), error):
            queue.put_nowait(part)
        return await read(queue, 2)

    assert asyncio.run(stream()) == [StreamPart("ab"), ItemError(500, "failed")]
