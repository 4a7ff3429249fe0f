"""Two servers behind a load balancer: one ends under load, and no request is lost."""

import http.client
import os
import re
import shutil
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import urlsplit

import pytest

import heedful
from heedful.client import ServerError
from tests.commands import reserved_port
from tests.serving.servers import START_SECONDS, running, wait_for

PACKAGING = Path(__file__).parents[2] / "packaging"
NGINX = """daemon off; pid {folder}/pid; error_log {folder}/error.log;
{user}
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    include {folder}/heedful.conf;
}}
"""


class Balancer(ThreadingHTTPServer):
    """Hands each request to the servers in turn, to the next after 429, 503 or no answer."""

    daemon_threads = True

    def __init__(self, port, urls):
        super().__init__(("127.0.0.1", port), _Handler)
        self.urls, self.served = urls, dict.fromkeys(urls, 0)
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self._answer(200, b"{}")

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        status, content = 502, b"{}"
        for url in sorted(self.server.urls, key=self.server.served.get):
            try:
                status, content = _forward(url, self.path, body)
            except OSError:
                continue
            if status not in (429, 503):
                self.server.served[url] += 1
                break
        self._answer(status, content)

    def _answer(self, status, content):
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args):
        """Write no log."""


class BusyServer(ThreadingHTTPServer):
    """Refuses texts that say "busy" with 429."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _BusyHandler)
        self.port, self.url = self.server_port, f"http://127.0.0.1:{self.server_port}"
        Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()


class _BusyHandler(_Handler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(429 if b"busy" in body else 200, b'{"results": [{"text": "done"}]}')


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


@contextmanager
def python_balancer(folder, port, servers):
    with Balancer(port, [server.url for server in servers]) as balancer:
        yield
        balancer.shutdown()


@contextmanager
def program(words, folder):
    """Run a balancer of its own process."""
    with (folder / "log.txt").open("w") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            yield
            assert process.poll() is None, (folder / "log.txt").read_text()
        finally:
            process.terminate()
            process.wait(START_SECONDS)


def read_packaged(name, port, servers):
    """Return a file of packaging/ with other ports."""
    ports = dict(zip(("8000", "8001", "8002"), (port, *(s.port for s in servers)), strict=True))
    text, count = re.subn(
        "800[012]", lambda old: str(ports[old[0]]), (PACKAGING / name).read_text()
    )
    assert count == 3
    return text


def nginx(folder, port, servers):
    user = "user root;" if os.getuid() == 0 else ""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, user=user))
    (folder / "heedful.conf").write_text(read_packaged("nginx.conf", port, servers))
    return program(["nginx", "-e", folder / "error.log", "-c", folder / "nginx.conf"], folder)


def haproxy(folder, port, servers):
    (folder / "haproxy.cfg").write_text(read_packaged("haproxy.cfg", port, servers))
    return program(["haproxy", "-db", "-f", folder / "haproxy.cfg"], folder)


@contextmanager
def balanced(folder, balance, servers):
    """Run a balancer in front of servers; yield a client that asks once."""
    if balance is not python_balancer and shutil.which(balance.__name__) is None:
        pytest.skip(f"needs {balance.__name__}")
    with ExitStack() as stack:
        port = stack.enter_context(reserved_port())
        stack.enter_context(balance(folder, port, servers))
        client = heedful.Client(f"http://127.0.0.1:{port}", max_retries=0)
        stack.enter_context(closing(client))
        wait_for(client.is_ready, START_SECONDS)
        yield client


BALANCERS = [
    pytest.param(python_balancer, marks=pytest.mark.slow),
    pytest.param(nginx, marks=pytest.mark.extras),
    pytest.param(haproxy, marks=pytest.mark.extras),
]


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL], ids=["terminate", "kill"])
@pytest.mark.parametrize("balance", BALANCERS)
def test_no_request_is_lost_when_one_of_two_servers_ends(tmp_path, trained, balance, end):
    with ExitStack() as stack:
        servers = []
        for name in ("first", "second"):
            (tmp_path / name).mkdir()
            server = running(tmp_path / name, f"letters={trained}", may_be_killed=name == "first")
            servers.append(stack.enter_context(server))
        client = stack.enter_context(balanced(tmp_path, balance, servers))
        texts = [f"{first} {second}" for first in "abcdefgh" for second in "abcdefgh"] * 3
        counts = []

        def translate(index):
            if index == len(texts) // 2:
                counts.append(servers[0].metrics())
                servers[0].signal_end(end)
            return client.translate(texts[index])["text"]

        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(translate, range(len(texts)))) == texts
        name = 'heedful_requests_total{route="/v1/translate",status="200"}'
        assert counts[0][name] > 0
        assert 0 < servers[1].metrics()[name] < len(texts)


@pytest.mark.parametrize("balance", BALANCERS)
def test_busy_servers_remain_available(tmp_path, balance):
    with BusyServer() as first, BusyServer() as second:
        with balanced(tmp_path, balance, [first, second]) as client:
            for _ in range(3):
                with pytest.raises(ServerError) as error:
                    client.translate("busy")
                assert error.value.status == 429
                assert client.translate("a")["text"] == "done"
        first.shutdown()
        second.shutdown()
