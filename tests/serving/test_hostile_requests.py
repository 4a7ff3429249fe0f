"""Bodies, headers and pages that mean harm: a short 4xx, and the server goes on as before."""

import base64
import io
import json
import socket
import struct
import time
import zlib
from contextlib import suppress

import pytest

from tests.serving.servers import GOLDEN, START_SECONDS, memory

JSON = {"Content-Type": "application/json"}
NESTED = b"[" * 100_000 + b"]" * 100_000


def bomb():
    """Return a PNG of 20,000 x 20,000 white pixels, some kilobytes long."""

    def chunk(name, data):
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = struct.pack(">IIBBBBB", 20_000, 20_000, 1, 0, 0, 0, 0)
    rows = zlib.compress(bytes(2501) * 2_000, 9)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    )


def body(text):
    return b'{"inputs": [' + text + b"]}"


BODIES = {
    "lone surrogate": (body(b'"\\ud800"'), JSON, 400),
    "NaN": (body(b"NaN"), JSON, 400),
    "infinite number": (body(b"1e999"), JSON, 400),
    "deep nesting": (body(NESTED), JSON, 400),
    "many digits": (body(b"9" * 100_000), JSON, 400),
    "no UTF-8": (body(b'"\xff"'), JSON, 400),
    "UTF-16": (body(b'"a"').decode().encode("utf-16"), JSON, 400),
    "UTF-16 by name": (body(b'"a"'), {"Content-Type": "application/json; charset=utf-16"}, 415),
    "no JSON": (b"inputs: a", JSON, 400),
    "long text": (body(b'"' + b"a" * 20_000_000 + b'"'), JSON, 413),
    "gzip": (zlib.compress(body(b'"a"')), {**JSON, "Content-Encoding": "gzip"}, 415),
    "plain text": (body(b'"a"'), {"Content-Type": "text/plain"}, 415),
    "form": (b"inputs=a", {"Content-Type": "application/x-www-form-urlencoded"}, 415),
    "many keys": (json.dumps({str(i): i for i in range(100_000)}).encode(), JSON, 422),
    "wide beam": (b'{"inputs": ["a"], "options": {"beam_size": 100000}}', JSON, 422),
    "long key": (b'{"inputs": ["a"], "' + b"k" * 100_000 + b'": 1}', JSON, 422),
}


@pytest.fixture(autouse=True)
def unharmed(server):
    """Check after each test that no worker was restarted and texts are translated."""
    workers = server.worker_pids()
    yield
    assert server.worker_pids() == workers
    assert server.predict("translate", ["a b"]).texts == ["a b"]


def assert_refused(answer, status):
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert len(answer.body) < 1000
    for secret in (str(GOLDEN.parents[2]).encode(), b"/tmp", b"site-packages", b"Traceback", b"0x"):
        assert secret not in answer.body


@pytest.mark.parametrize("name", BODIES)
def test_hostile_body_is_refused(server, name):
    content, headers, status = BODIES[name]
    try:
        answer = server.request("POST", "/v1/translate", content, headers)
    except (BrokenPipeError, ConnectionResetError):  # it was closed while we were sending
        assert status == 413
    else:
        assert_refused(answer, status)


@pytest.mark.parametrize("value", ["file:///etc/passwd", "http://localhost/a.png", "/etc/passwd"])
@pytest.mark.parametrize("route", ["caption", "glimpse"])
def test_image_is_never_read_from_a_file_or_an_address(server, route, value):
    assert_refused(server.predict(route, [value]), 422)


def test_image_bomb_is_refused(server):
    (worker,) = server.worker_pids()
    before = memory(worker, "VmHWM")
    assert_refused(server.predict("caption", [base64.b64encode(bomb()).decode()]), 422)
    assert memory(worker, "VmHWM") - before < 100e6  # its pixels are 1.2 GB


@pytest.mark.parametrize(
    "path",
    ["/..%2f..%2fetc/passwd", "/v1/models/..%2f..%2fetc", "/v1/models/%00", "//", "/v1/tag/"],
)
def test_strange_path_is_not_found(server, path):
    assert_refused(server.get(path), 404)


def test_null_character_in_a_text_is_a_character(server):
    assert server.predict("translate", ["a \0 b"]).status == 200


def raw(server, text, *, seconds=START_SECONDS):
    """Send bytes and return the first line of the answer, and what follows."""
    with socket.create_connection((server.host, int(server.port)), timeout=seconds) as client:
        client.sendall(text)
        answer = io.BytesIO()
        while part := client.recv(65_536):
            answer.write(part)
            if b"\r\n\r\n" in answer.getvalue():
                break
        return answer.getvalue()


def test_endless_chunks_are_cut_off(server):
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunk = b"10000\r\n" + b" " * 65_536 + b"\r\n"
    try:
        answer = raw(server, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)
    except (BrokenPipeError, ConnectionResetError):
        return
    assert b" 413 " in answer.splitlines()[0]


@pytest.mark.parametrize("length", ["-1", "5x", "99999999999999999999999"])
def test_lying_content_length_is_refused(server, length):
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\nabc"
    assert raw(server, head.encode()).split()[1] in (b"400", b"413")


def test_body_shorter_than_its_length_does_not_hold_others_up(server):
    head = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc"
    with socket.create_connection((server.host, int(server.port))) as client:
        client.sendall(head)
        assert server.predict("translate", ["a"]).status == 200


def test_connection_without_headers_is_closed(server):
    address = server.host, int(server.port)
    client = socket.create_connection(address, timeout=START_SECONDS)
    with client, suppress(ConnectionError):  # this process may be slow, and find it closed
        for part in (b"GET / HT", b"TP/1.1\r\n", b"Host: localhost\r\n"):
            client.sendall(part)
            time.sleep(0.5)
        assert client.recv(100) == b""


# ----- pages of other sites


@pytest.mark.parametrize("path", ["/v1/translate", "/v1/models/letters/reload"])
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost.evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=lambda headers: " ".join(f"{name} {value}" for name, value in headers.items()),
)
def test_page_of_another_site_is_refused(server, path, headers):
    assert_refused(server.post(path, {"inputs": ["a"]}, headers=headers), 403)


def test_page_of_the_same_origin_may_ask(server):
    headers = {"Origin": server.url}
    assert server.post("/v1/translate", {"inputs": ["a"]}, headers=headers).status == 200
