"""Workers that are killed or hang, floods, signals, runs that cannot be loaded."""

import os
import random
import shutil
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from heedful.serving.server import listen
from heedful.serving.settings import ServerSettings
from tests.serving.servers import GOLDEN, START_SECONDS, Server, memory, running, start, wait_for

pytestmark = pytest.mark.faults

TIMEOUT = 4.0  # of requests that are late after it
SHORT = {"X-Request-Timeout": str(TIMEOUT)}
NUM_PREDICTED = 'heedful_batch_items_sum{model="letters"}'


@pytest.fixture(scope="module")
def fragile(trained, tmp_path_factory):
    """Serve a run whose workers are killed, stopped and replaced; it is ready after each test."""
    folder = tmp_path_factory.mktemp("fragile")
    run = shutil.copytree(trained, folder / "run")
    options = ["--timeout", 60, "--hang-timeout", 1, "--max-batch", 8]
    with running(folder, f"letters={run}", *options) as server:
        server.run, server.processes = Path(run), set()
        yield server
    assert not any(Path(f"/proc/{pid}").exists() for pid in server.processes)


@pytest.fixture
def server(fragile):
    fragile.wait_until_ready()
    return fragile


class Load:
    """Clients that ask all the time, in threads, until the end of the block."""

    def __init__(self, server, *, num_clients=8, num_inputs=1, headers=()):
        self.server, self.answers, self.failures = server, [], []
        self._body, self._headers = {"inputs": ["a b c"] * num_inputs}, headers
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(num_clients)]

    def _ask(self):
        while not self._is_over.is_set():
            try:
                answer = self.server.post("/v1/translate", self._body, headers=self._headers)
            except OSError as error:
                self.failures.append(error)
                time.sleep(0.05)
                continue
            self.answers.append(answer)
            if answer.status != 200:
                time.sleep(0.05)

    def __enter__(self):
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exception):
        self._is_over.set()
        for thread in self._threads:
            thread.join()


class Lateness:
    """How long an empty request takes at most in the block: what the machine adds to others."""

    def __init__(self, server):
        self.seconds, self._server, self._is_over = 0.0, server, threading.Event()
        self._thread = threading.Thread(target=self._measure)

    def _measure(self):
        while not self._is_over.wait(0.05):
            self.seconds = max(self.seconds, self._server.get("/livez").seconds)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exception):
        self._is_over.set()
        self._thread.join()


def count_requests(server):
    metrics = server.metrics()
    prefix = 'heedful_requests_total{route="/v1/translate",status="'
    counts = {name: value for name, value in metrics.items() if name.startswith(prefix)}
    return Counter({int(name[len(prefix) :].split('"')[0]): int(n) for name, n in counts.items()})


def memory_and_files(pid):
    return memory(pid), len(os.listdir(f"/proc/{pid}/fd"))


@pytest.mark.parametrize(
    "seconds", [12, pytest.param(60, marks=pytest.mark.slow)], ids=lambda seconds: f"{seconds} s"
)
def test_killed_workers_are_replaced_under_load(server, seconds):
    """One every five seconds on an idle machine; on a busy one, which adds to all times, others."""
    is_idle = seconds == 60
    with Load(server, headers=SHORT):
        time.sleep(5 * is_idle)
    before, restarts = count_requests(server), server.metrics()["heedful_worker_restarts_total"]
    predicted = server.metrics().get(NUM_PREDICTED, 0)
    rss, num_files = memory_and_files(server.process.pid)
    end, delays, killed_at = time.monotonic() + seconds, [], time.monotonic()
    with Lateness(server) as lateness, Load(server, headers=SHORT) as load:
        while time.monotonic() < end:
            server.wait_until_ready()
            pause = killed_at + 5 - time.monotonic() if is_idle else random.uniform(0.5, 2)
            time.sleep(max(0, pause))
            server.processes.update(server.worker_pids())
            os.kill(server.worker_pids()[0], signal.SIGKILL)
            killed_at = time.monotonic()
            wait_for(lambda: server.get("/readyz").status == 503, START_SECONDS)
            delays.append(time.monotonic() - killed_at)
        server.wait_until_ready()
        server.processes.update(server.worker_pids())
        wait_for(lambda: sum(a.status == 200 for a in load.answers) > 20, START_SECONDS)
    assert not load.failures
    statuses = Counter(answer.status for answer in load.answers)
    assert statuses.keys() <= {200, 429, 503, 504}
    late = 0 if is_idle else lateness.seconds
    assert max(delays) < 0.5 + 5 * late
    assert max(answer.seconds for answer in load.answers) < TIMEOUT + 1 + late
    assert {text for a in load.answers if a.status == 200 for text in a.texts} == {"a b c"}
    assert count_requests(server) - before == statuses
    metrics = server.metrics()
    assert metrics["heedful_worker_restarts_total"] - restarts == len(delays)
    num_predicted = metrics[NUM_PREDICTED] - predicted
    assert statuses[200] <= num_predicted <= statuses[200] + statuses[504]
    most_files = 1.05 * num_files if is_idle else num_files + 4
    wait_for(lambda: memory_and_files(server.process.pid)[1] <= most_files, START_SECONDS)
    assert memory_and_files(server.process.pid)[0] < 1.05 * rss + (0 if is_idle else 2e6)


def test_requests_of_a_worker_that_dies_are_answered_by_the_next(trained, tmp_path):
    limits = ["--max-batch", 2, "--timeout", START_SECONDS]
    with running(tmp_path, f"letters={trained}", *limits) as server:
        (worker,) = server.worker_pids()
        os.kill(worker, signal.SIGSTOP)
        texts = [f"{first} {second}" for first in "abcd" for second in "efg"]
        with ThreadPoolExecutor(len(texts)) as clients:
            answers = clients.map(lambda text: server.predict("translate", [text]), texts)
            num_queued = len(texts) - 2
            wait_for(lambda: server.metrics()["heedful_queue_items"] >= num_queued, START_SECONDS)
            os.kill(worker, signal.SIGKILL)
            assert [answer.texts for answer in answers] == [[text] for text in texts]
        metrics = server.metrics()
        assert metrics["heedful_worker_restarts_total"] == 1
        assert metrics['heedful_batch_items_sum{model="letters"}'] == len(texts)
        assert count_requests(server) == {200: len(texts)}


def test_worker_that_hangs_is_replaced(server):
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    with Lateness(server) as lateness:
        answer = server.post("/v1/translate", {"inputs": ["a"]}, headers=SHORT)
    assert answer.status == 504
    assert answer.seconds < TIMEOUT + 1 + lateness.seconds
    assert server.get("/livez").status == 200
    wait_for(lambda: worker not in server.worker_pids(), START_SECONDS)
    server.wait_until_ready()
    assert server.predict("translate", ["a"]).texts == ["a"]


LONG_TEXTS = {"inputs": [" ".join("abcdefgh" * 4)] * 8}


def flood(server, headers=()):
    """Send 300 requests at a time; return answers and when they came."""
    start_time = time.monotonic()

    def ask(_):
        answer = server.post("/v1/translate", LONG_TEXTS, headers=headers)
        return time.monotonic() - start_time, answer

    with ThreadPoolExecutor(300) as clients:
        return list(clients.map(ask, range(300)))


def test_flood_is_refused_at_once_and_what_is_admitted_is_answered(server):
    """Unless others take the cores meanwhile, so that batches take longer than those before."""
    first = server.metrics()
    for _ in range(3):  # they show how long such texts take
        server.post("/v1/translate", LONG_TEXTS)
    before, counted = server.metrics(), count_requests(server)
    answers = flood(server, SHORT)
    statuses = Counter(answer.status for _, answer in answers)
    after = server.metrics()
    assert {200, 429} <= statuses.keys() <= {200, 429, 504}, statuses
    is_slowed_down = seconds_per_input(before, after) > 1.5 * seconds_per_input(first, before)
    assert is_slowed_down or not statuses[504], statuses
    waits = [int(a.headers["retry-after"]) for _, a in answers if a.status == 429]
    assert min(waits) >= 1
    assert max(waits) <= 60
    assert count_requests(server) - counted == statuses
    rejected = 'heedful_rejected_requests_total{reason="deadline"}'
    assert after[rejected] - before.get(rejected, 0) == statuses[429]
    num_predicted = after[NUM_PREDICTED] - before[NUM_PREDICTED]
    assert 8 * statuses[200] <= num_predicted <= 8 * (statuses[200] + statuses[504])


def seconds_per_input(before, after):
    names = 'heedful_batch_duration_seconds_sum{model="letters"}', NUM_PREDICTED
    seconds, num_inputs = (after[name] - before.get(name, 0) for name in names)
    return seconds / num_inputs


@pytest.mark.slow
def test_flood_is_told_the_real_wait(trained, tmp_path):
    """Each of those that are refused, on a machine without other programs."""
    with running(tmp_path, f"letters={trained}", "--timeout", 3, "--max-batch", 8) as server:
        flood(server)
        answers = flood(server)
    assert {answer.status for _, answer in answers} == {200, 429}
    end = max(moment for moment, answer in answers if answer.status == 200)
    assert min(moment for moment, answer in answers if answer.status == 429) < 0.6
    waits = [
        (int(answer.headers["retry-after"]), end - moment)
        for moment, answer in answers
        if answer.status == 429
    ]
    assert all(told == pytest.approx(real, rel=0.5) for told, real in waits), waits


def test_run_is_reloaded_without_a_lost_request(server):
    (worker,) = server.worker_pids()
    with Load(server, num_clients=4) as load:
        assert server.post("/v1/models/letters/reload", b"").json["id"] == "letters"
        server.process.send_signal(signal.SIGHUP)
        wait_for(lambda: server.log.read_text().count("reloaded all runs") >= 2, START_SECONDS)
    assert not load.failures
    assert {answer.status for answer in load.answers} <= {200, 429}
    wait_for(lambda: len(server.worker_pids()) == 1, START_SECONDS)
    assert worker not in server.worker_pids()


def test_run_that_cannot_be_loaded_leaves_the_old_one(server):
    workers, path = server.worker_pids(), server.run / "weights.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        answer = server.post("/v1/models/letters/reload", b"")
    finally:
        path.write_bytes(content)
    assert answer.status == 409
    assert str(server.run).encode() not in answer.body
    assert "weights.safetensors" in server.log.read_text()
    wait_for(lambda: server.worker_pids() == workers, START_SECONDS)
    assert server.predict("translate", ["a"]).texts == ["a"]
    assert server.post("/v1/models/none/reload", b"").status == 404


# ----- servers that end


def launch(tmp_path, *arguments):
    process = start(*arguments, log=tmp_path / "server.log")
    line = process.stdout.readline()
    assert line, (tmp_path / "server.log").read_text()
    return Server(process, line.split()[0], tmp_path / "server.log")


def test_sigterm_finishes_what_was_begun(trained, tmp_path):
    limits = ["--timeout", START_SECONDS, "--shutdown-timeout", START_SECONDS]
    server = launch(tmp_path, trained, *limits)
    workers = server.worker_pids()
    with Load(server, num_clients=8, num_inputs=64) as load:
        wait_for(lambda: load.answers, START_SECONDS)
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(START_SECONDS) == 0
    statuses = {answer.status for answer in load.answers}
    assert {200} <= statuses <= {200, 429, 503}  # 429 if the machine is slow
    assert all(isinstance(failure, ConnectionError) for failure in load.failures)
    assert not any(Path(f"/proc/{pid}").exists() for pid in workers)
    with listen(ServerSettings(host=server.host, port=int(server.port))):
        pass  # the port is free, as closed connections do not keep it
    server.process.stdout.close()


@pytest.mark.parametrize("is_late", [False, True], ids=["in time", "too late"])
def test_sigterm_answers_what_was_begun_and_refuses_the_rest(trained, tmp_path, is_late):
    seconds = 1 if is_late else START_SECONDS
    server = launch(tmp_path, trained, "--timeout", START_SECONDS, "--shutdown-timeout", seconds)
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as client:
        answer = client.submit(server.predict, "translate", ["a"])
        wait_for(lambda: server.metrics()["heedful_queue_duration_seconds_count"], START_SECONDS)
        server.process.send_signal(signal.SIGTERM)
        start_time = time.monotonic()
        wait_for(lambda: server.get("/readyz").status == 503, START_SECONDS)
        refused = server.predict("translate", ["b"])
        assert (refused.status, refused.headers["retry-after"]) == (503, "5")
        if not is_late:
            os.kill(worker, signal.SIGCONT)
        assert answer.result().status == (503 if is_late else 200)
    assert server.process.wait(START_SECONDS) == 0
    assert time.monotonic() - start_time < seconds + 4  # without the 5 s for answers that are sent
    assert "Traceback" not in server.log.read_text()
    assert not Path(f"/proc/{worker}").exists()
    server.process.stdout.close()


def test_second_sigterm_ends_at_once(trained, tmp_path):
    server = launch(tmp_path, trained)
    os.kill(server.worker_pids()[0], signal.SIGSTOP)
    thread = threading.Thread(
        target=pytest.raises, args=(OSError, server.predict, "translate", ["a"])
    )
    thread.start()
    wait_for(lambda: server.metrics()["heedful_queue_duration_seconds_count"], START_SECONDS)
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: server.get("/readyz").status == 503, START_SECONDS)
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(START_SECONDS) == 143  # not 0, as after --shutdown-timeout
    thread.join()
    server.process.stdout.close()


def alter(run):
    path = run / "weights.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"x")


@pytest.mark.parametrize(
    ("damage", "message", "hint"),
    [
        (shutil.rmtree, "no such folder", "heedful train"),
        (lambda run: (run / "manifest.json").unlink(), "has not saved parameters", "validation"),
        (alter, "weights.safetensors", ""),
    ],
    ids=["missing", "unfinished", "altered"],
)
def test_run_that_cannot_be_served_exits_with_a_hint(copied, tmp_path, damage, message, hint):
    damage(copied)
    log = tmp_path / "server.log"
    process = start(copied, log=log, cwd=tmp_path)
    assert process.communicate(timeout=START_SECONDS)[0] == ""
    assert process.returncode == 2, log.read_text()
    assert message in log.read_text()
    assert hint in log.read_text().splitlines()[-1]


def test_server_is_not_ready_before_a_prediction(tmp_path):
    log = tmp_path / "server.log"
    process = start(GOLDEN / "translation-recurrent", log=log)
    try:
        wait_for(lambda: ": loading" in log.read_text(), START_SECONDS)
        url = log.read_text().split(": loading")[0]
        server = Server(process, url, log)
        wait_for(server.worker_pids, START_SECONDS)
        (worker,) = server.worker_pids()
        command = Path(f"/proc/{worker}/cmdline")
        # Until it runs its own program, the server that starts it would be stopped with it.
        wait_for(lambda: b"heedful.parallel" in command.read_bytes(), START_SECONDS)
        os.kill(worker, signal.SIGSTOP)  # or it may be faster than this test
        assert server.get("/livez").status == 200
        assert server.get("/readyz").status == 503
        assert server.predict("translate", ["a"]).status == 503
        os.kill(worker, signal.SIGCONT)
        server.wait_until_ready()
        assert process.stdout.readline() == f"{url} serves translation-recurrent (translation)\n"
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--host", "0.0.0.0"], "without a token"),
        (["--ui", "--host", "0.0.0.0"], "without a token"),
        (["--timeout", "0"], "timeout"),
        (["--languages", "de"], "is no pair"),
        (["--languages", "other=de-en"], "no run is called 'other'"),
    ],
)
def test_options_that_cannot_be_used_exit_with_a_hint(tmp_path, options, message):
    log = tmp_path / "server.log"
    process = start(GOLDEN / "tagging", *options, log=log)
    process.communicate(timeout=START_SECONDS)
    assert process.returncode == 2
    assert message in log.read_text()


def test_port_in_use_exits_with_a_hint(server, tmp_path):
    log = tmp_path / "server.log"
    process = start(server.run, log=log, port=server.port)
    process.communicate(timeout=START_SECONDS)
    assert process.returncode == 2
    assert "--port" in log.read_text()
