import asyncio
import socket

from heedful.serving.server import listen
from heedful.serving.settings import ServerSettings


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
