"""Two servers behind a load balancer: one stops under load, and no request is lost."""

import http.client
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.parse import urlsplit

import pytest

import heedful
from tests.serving.servers import running

pytestmark = pytest.mark.slow


class Balancer(ThreadingHTTPServer):
    """Hands each request to the servers in turn, to the next after 429, 503 or no answer."""

    daemon_threads = True

    def __init__(self, urls):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.urls, self.served = urls, dict.fromkeys(urls, 0)
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        least_used = sorted(self.server.urls, key=self.server.served.get)
        status, content = 502, b"{}"
        for url in least_used:
            try:
                status, content = _forward(url, self.path, body)
            except OSError:
                continue
            if status not in (429, 503):
                self.server.served[url] += 1
                break
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        """Write no log."""


def _forward(url, path, body):
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname, parts.port, timeout=60)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    except http.client.HTTPException as error:
        raise OSError(str(error)) from error
    finally:
        connection.close()


def test_no_request_is_lost_when_one_of_two_servers_stops(tmp_path, trained):
    folders = [tmp_path / "first", tmp_path / "second"]
    with ExitStack() as stack:
        servers = []
        for folder in folders:
            folder.mkdir()
            servers.append(stack.enter_context(running(folder, f"letters={trained}")))
        balancer = stack.enter_context(Balancer([server.url for server in servers]))
        client = heedful.Client(f"http://127.0.0.1:{balancer.server_port}")
        texts = [f"{first} {second}" for first in "abcdefgh" for second in "abcdefgh"]
        stop_at = len(texts) // 2

        def translate(index):
            if index == stop_at:
                servers[0].process.terminate()
            return client.translate(texts[index])["text"]

        with ThreadPoolExecutor(8) as pool:
            outputs = list(pool.map(translate, range(len(texts))))
        expected = heedful.load(trained, device="cpu").translate(texts)
        assert outputs == [result.text for result in expected]
        assert min(balancer.served.values()) > 0
        balancer.shutdown()
