"""The client: retries, connections, errors and streams, against a server that answers as told."""

import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

import heedful
from heedful.client import ServerError
from heedful.errors import ArgumentError

RESULT = {"model": "m", "results": [{"text": "A"}]}


class ScriptedServer(ThreadingHTTPServer):
    """Gives the next of its answers, (status, headers, body), to each request."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers, self.requests, self.num_connections = [], [], 0
        self.url = f"http://127.0.0.1:{self.server_port}"
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def setup(self):
        super().setup()
        self.server.num_connections += 1

    def do_POST(self):
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.requests.append((self.path, self.headers, json.loads(content)))
        status, headers, body = self.server.answers.pop(0)
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = "X-Close" in headers

    def log_message(self, *args):
        """Write no log."""


@pytest.fixture
def server():
    with ScriptedServer() as server:
        yield server
        server.shutdown()


def problem(status, **fields):
    return status, {"Retry-After": "0"}, {"status": status, "detail": "too busy", **fields}


def test_request_has_inputs_options_and_token(server):
    server.answers = [(200, {}, RESULT)]
    client = heedful.Client(server.url + "/prefix/", token="secret")
    assert client.translate("a", options={"beam_size": 2}) == {"text": "A"}
    ((path, headers, body),) = server.requests
    assert path == "/prefix/v1/translate"
    assert headers["Authorization"] == "Bearer secret"
    assert (body["inputs"], body["options"], body["model"]) == (["a"], {"beam_size": 2}, None)


class TakenConnections(list):
    """A pool whose only connection another thread takes before this one does."""

    def __bool__(self):
        return True


def test_connection_pool_is_thread_safe(server):
    server.answers = [(200, {}, RESULT)]
    client = heedful.Client(server.url)
    client._connections = TakenConnections()
    assert client.predict("translate", ["a"]) == [{"text": "A"}]


def test_busy_server_is_asked_again(server):
    server.answers = [problem(429), problem(503), (200, {}, RESULT)]
    assert heedful.Client(server.url).predict("translate", ["a"]) == [{"text": "A"}]
    assert len(server.requests) == 3


def test_retries_are_limited_by_number_and_time(server):
    server.answers = [problem(503)] * 2 + [(429, {"Retry-After": "50"}, {})]
    with pytest.raises(ServerError, match="too busy") as error:
        heedful.Client(server.url, max_retries=1).predict("translate", ["a"])
    assert error.value.status == 503
    with pytest.raises(ServerError, match="status 429") as error:
        heedful.Client(server.url, timeout=10).predict("translate", ["a"])
    assert error.value.retry_after == 50
    assert len(server.requests) == 3


def test_other_errors_are_raised_at_once_and_name_the_field(server):
    server.answers = [problem(422, field="inputs.1", hint="split it")]
    with pytest.raises(ServerError) as error:
        heedful.Client(server.url).predict("translate", ["a", "b"])
    assert str(error.value) == f"{server.url}: inputs.1: too busy\n  split it"
    assert (error.value.status, error.value.field) == (422, "inputs.1")


def test_connection_is_kept_and_replaced_when_the_server_closed_it(server):
    closing = (200, {"X-Close": "unannounced"}, RESULT)
    server.answers = [(200, {}, RESULT), closing, (200, {}, RESULT)]
    client = heedful.Client(server.url)
    for num_connections in (1, 1, 2):
        assert client.predict("translate", ["a"]) == [{"text": "A"}]
        assert server.num_connections == num_connections
    client.close()


def test_stream_yields_text_and_raises_a_late_error(server):
    events = b'event: token\ndata: {"text": "a"}\n\nevent: token\ndata: {"text": "\\u2028"}\n\n'
    done, failed = (f"event: {event}\ndata: {{}}\n\n".encode() for event in ("done", "error"))
    failed = failed.replace(b"{}", b'{"status": 504, "detail": "late"}')
    kind = {"Content-Type": "text/event-stream"}
    server.answers = [(200, kind, events + end) for end in (done, failed, b"")]
    client = heedful.Client(server.url)
    assert list(client.stream("generate", "")) == ["a", "\u2028"]
    with pytest.raises(ServerError, match="late") as error:
        list(client.stream("generate", ""))
    assert error.value.status == 504
    with pytest.raises(ServerError, match="the answer was cut off"):
        list(client.stream("generate", ""))


def test_answer_of_another_program_is_reported(server):
    server.answers = [(200, {}, b"<html>"), (404, {}, b"<html>")]
    client = heedful.Client(server.url)
    with pytest.raises(ServerError, match="the answer is no JSON"):
        client.predict("translate", ["a"])
    with pytest.raises(ServerError, match="status 404"):
        client.predict("translate", ["a"])


def test_no_server_is_reported_with_the_address():
    with pytest.raises(ServerError, match=r"http://127.0.0.1:9: no answer \(.*refused") as error:
        heedful.Client("http://127.0.0.1:9").translate("a")
    assert error.value.status is None
    assert not heedful.Client("http://127.0.0.1:9").is_ready()


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://host", "http://"])
def test_other_urls_are_rejected(url):
    with pytest.raises(ArgumentError, match="is no address"):
        heedful.Client(url)


def test_translate_command_uses_the_run_of_this_name(server, tmp_path, capsys):
    from heedful.cli.main import app

    texts = tmp_path / "texts.txt"
    texts.write_text("a\nb\n")
    server.answers = [(200, {}, {"results": [{"text": "A"}, {"text": "B\n"}]})]
    app(["translate", "runs/demo", str(texts), "--server", server.url], standalone_mode=False)
    assert capsys.readouterr().out == "A\nB \n"
    ((_, _, body),) = server.requests
    assert (body["inputs"], body["model"], body["text_only"]) == (["a", "b"], "demo", True)
