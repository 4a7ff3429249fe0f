"""Clients that read slowly, or not at all."""

import asyncio

from heedful.serving.metrics import ServerMetrics
from heedful.serving.protocol import ItemError, StreamPart
from heedful.serving.security import Guard
from heedful.serving.settings import ServerSettings
from heedful.serving.supervisor import StreamQueue

SCOPE = {"type": "http", "method": "GET", "path": "/livez", "headers": [(b"host", b"localhost")]}


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


def test_answer_that_nobody_reads_is_given_up_after_the_timeout():
    num_sent = []

    async def app(scope, receive, send):
        await receive()
        await send({"type": "http.response.start", "status": 200})
        while True:
            num_sent.append(1)
            await send({"type": "http.response.body", "body": b"a", "more_body": True})

    messages = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive():
        return messages.pop() if messages else await asyncio.Event().wait()

    async def send(message):
        if message["type"] == "http.response.body":
            await asyncio.Event().wait()

    guard = Guard(app, ServerSettings(timeout=0.05), ServerMetrics())
    asyncio.run(asyncio.wait_for(guard(dict(SCOPE), receive, send), 30))
    assert len(num_sent) < 3
