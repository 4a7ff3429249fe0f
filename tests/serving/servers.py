"""Real servers in processes of their own, and clients that speak to them over sockets."""

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

GOLDEN = Path(__file__).parents[1] / "golden" / "0.1.0"
START_SECONDS = 300  # to load the runs on a busy machine


class Answer(NamedTuple):
    """What a client got."""

    status: int
    headers: dict
    body: bytes
    seconds: float

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def texts(self):
        return [result["text"] for result in self.json["results"]]


class Server:
    """A server that runs."""

    def __init__(self, process, url, log):
        self.process, self.url, self.log = process, url, log
        self._is_ending = False
        self.host, self.port = re.fullmatch(r"http://(.*):(\d+)", url).groups()

    def request(self, method, path, body=None, headers=(), *, timeout=START_SECONDS):
        """Send a request and return the answer; `body` are bytes, or a value to send as JSON."""
        start = time.monotonic()
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=timeout)
        headers = dict(headers)
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        names = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, names, content, time.monotonic() - start)

    def get(self, path, **options):
        return self.request("GET", path, **options)

    def post(self, path, body, **options):
        return self.request("POST", path, body, **options)

    def predict(self, route, inputs, **fields):
        return self.post(f"/v1/{route}", {"inputs": inputs, **fields})

    def predict_all(self, route, requests, *, num_clients=32, **fields):
        """Send requests, each a list of inputs, from several clients; return answers in order."""
        with ThreadPoolExecutor(num_clients) as clients:
            return list(clients.map(lambda inputs: self.predict(route, inputs, **fields), requests))

    def metrics(self):
        """Return the metrics by name with labels."""
        lines = self.get("/metrics").body.decode().splitlines()
        pairs = (line.rpartition(" ") for line in lines if not line.startswith("#"))
        return {name: float(value) for name, _, value in pairs}

    def worker_pids(self):
        """Return the processes that the front process has started."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def wait_until_ready(self, seconds=START_SECONDS):
        wait_for(lambda: self.get("/readyz").status == 200, seconds)

    def signal_end(self, number=signal.SIGTERM):
        """Send a signal that ends the server."""
        self._is_ending = True
        self.process.send_signal(number)

    def stop(self):
        """End the server as a service manager does; return its exit code."""
        if not self._is_ending:  # a second SIGTERM would end it at once
            self.signal_end()
        return self.process.wait(START_SECONDS)


def wait_for(condition, seconds):
    """Wait until a condition holds; fail if it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def memory(pid, name="VmRSS"):
    """Return a figure of /proc/PID/status in bytes."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{name}:\s*(\d+) kB", status, re.MULTILINE)[1]) * 1024


def start(*arguments, log, port=0, environment=(), **options):
    """Start a server; return its process."""
    words = [sys.executable, "-m", "heedful", "serve", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **dict(environment)}
    return subprocess.Popen(
        [*words, "--port", str(port), "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=log.open("w"),
        text=True,
        env=environment,
        **options,
    )


@contextmanager
def running(folder, *arguments, may_be_killed=False, may_raise=False, environment=()):
    """Run a server until the end of the block; exceptions in its log are failures."""
    log = folder / "server.log"
    process = start(*arguments, log=log, environment=environment)
    try:
        line = process.stdout.readline()
        assert line, log.read_text()
        server = Server(process, line.split()[0], log)
        yield server
        assert server.stop() in ((0, -signal.SIGKILL) if may_be_killed else (0,)), log.read_text()
        assert may_raise or "Traceback" not in log.read_text(), log.read_text()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
