"""Connections of the front process."""

import asyncio
import socket

import pytest
import uvicorn
from uvicorn.server import ServerState

from heedful.serving.server import HTTPProtocol, listen
from heedful.serving.settings import ServerSettings

CONFIG = uvicorn.Config(None, log_config=None)
START = "GET / HTTP/1.1\r\n"


def test_connections_send_small_answers_at_once():
    """With Nagle's algorithm the body of an answer waits 40 ms for the client's delayed ACK."""

    async def accept_one():
        has_no_delay = asyncio.get_running_loop().create_future()

        async def handle(_, writer):
            connection = writer.get_extra_info("socket")
            has_no_delay.set_result(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(handle, sock=listening):
            _, writer = await asyncio.open_connection(*listening.getsockname())
            writer.close()
            return await has_no_delay

    listening = listen(ServerSettings(port=0))
    assert asyncio.run(accept_one())


class Transport(asyncio.Transport):
    """Keeps the pieces that are sent."""

    def __init__(self):
        super().__init__()
        self.pieces = []

    def write(self, data):
        self.pieces.append(bytes(data))

    def is_closing(self):
        return False

    def get_write_buffer_size(self):
        return 0

    def close(self):
        """Keep it open."""

    def resume_reading(self):
        """Read nothing."""


def send_answer(*chunks):
    """Return the pieces in which a server sends an answer whose body comes in chunks."""

    async def app(scope, receive, send):
        await send({"type": "http.response.start", "status": 200})
        for chunk in chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b"end"})
        is_answered.set()

    async def answer():
        config = uvicorn.Config(app, log_config=None)
        config.load()
        protocol, transport = HTTPProtocol(config, ServerState(), {}), Transport()
        protocol.connection_made(transport)
        protocol.data_received(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        await is_answered.wait()
        await asyncio.sleep(0)
        protocol.connection_lost(None)
        return transport.pieces

    is_answered = asyncio.Event()
    return asyncio.run(answer())


def test_response_is_sent_in_one_write():
    """If a server ends before, a load balancer can ask another; after headers it could not."""
    (piece,) = send_answer()
    assert piece.startswith(b"HTTP/1.1 200 OK")
    assert b"end" in piece


@pytest.mark.parametrize("is_closed", [False, True])
def test_connection_of_a_client_that_reads_nothing_is_ended(is_closed):
    class Protocol(HTTPProtocol):
        unread_timeout = 0.05

    async def leave_unread():
        is_lost = asyncio.Event()
        protocol = Protocol(CONFIG, ServerState(), {})
        protocol.connection_lost = lambda error: is_lost.set()
        ours, theirs = socket.socketpair()
        with theirs:
            await asyncio.get_running_loop().create_connection(lambda: protocol, sock=ours)
            protocol.transport.write(bytes(10_000_000))
            if is_closed:
                protocol.transport.close()
            await asyncio.wait_for(is_lost.wait(), 10)

    asyncio.run(leave_unread())


@pytest.mark.parametrize("size", [60_000, 70_000])
def test_connection_with_headers_over_64_kib_is_closed(size):
    async def send_headers():
        protocol, is_closed = HTTPProtocol(CONFIG, ServerState(), {}), []
        transport = Transport()
        transport.close = lambda: is_closed.append(True)
        protocol.connection_made(transport)
        for start in range(0, size, 1000):
            protocol.data_received(f"{START if not start else ''}X: {'x' * 994}\r\n".encode())
        return bool(is_closed)

    assert asyncio.run(send_headers()) == (size > 65_536)


def test_stream_chunks_are_sent_separately():
    first, second, last = send_answer(b"one", b"two")
    assert b"one" in first
    assert b"two" in second
    assert b"end" in last
