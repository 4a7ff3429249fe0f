"""Answers do not depend on what else is asked at the same time, nor on who hangs up."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.commands import LETTERS, heedful
from tests.serving.servers import START_SECONDS, running, wait_for

pytestmark = pytest.mark.wide

MAX_BATCH = 64  # by default


def write_texts(count):
    chance = random.Random(1)
    return [" ".join(chance.choices(LETTERS, k=chance.randint(1, 12))) for _ in range(count)]


def send_and_hang_up(server, text):
    """Send a request, and close the connection without reading."""
    content = json.dumps({"inputs": [text]}).encode()
    head = f"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    with socket.create_connection((server.host, int(server.port))) as client:
        client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)


@pytest.mark.parametrize("beam_size", [1, 5])
@pytest.mark.parametrize(
    "count", [200, pytest.param(2000, marks=pytest.mark.slow)], ids=lambda count: f"{count} texts"
)
def test_batched_texts_match_the_command_line(
    server, trained, tmp_path, capsys, monkeypatch, beam_size, count
):
    texts = write_texts(count)
    path, written = tmp_path / "texts.txt", tmp_path / "out.txt"
    path.write_text("\n".join(texts) + "\n")
    words = ["translate", trained, path, "--beam", beam_size, "--device", "cpu", "-o", written]
    assert heedful(capsys, monkeypatch, *map(str, words)).code == 0
    order = random.Random(2).sample(range(count), count)
    before = server.metrics()
    options = {"beam_size": beam_size}
    leaving = [
        threading.Thread(target=send_and_hang_up, args=(server, texts[i])) for i in order[::3]
    ]
    for thread in leaving:
        thread.start()
    requests = [[texts[i]] for i in order]
    if count > 200:
        answers = server.predict_all("translate", requests, options=options)
    else:
        answers = ask_all_at_once(server, requests, options, num_queued=count - MAX_BATCH)
    for thread in leaving:
        thread.join()
    assert {answer.status for answer in answers} == {200}
    outputs = dict(zip(order, (answer.texts[0] for answer in answers), strict=True))
    assert [outputs[i] for i in range(count)] == written.read_text().splitlines()
    after = server.metrics()
    name = 'heedful_requests_total{route="/v1/translate",status="200"}'
    assert after[name] - before.get(name, 0) >= count
    sizes = 'heedful_batch_items_{}{{model="letters"}}'
    num_items = after[sizes.format("sum")] - before.get(sizes.format("sum"), 0)
    num_batches = after[sizes.format("count")] - before.get(sizes.format("count"), 0)
    assert count <= num_items <= count + len(leaving)
    assert num_items / num_batches > 2  # requests of several clients share a batch


def ask_all_at_once(server, requests, options, *, num_queued):
    """Stop the worker until all clients have asked: they then share batches on any machine."""
    (worker,) = server.worker_pids()
    os.kill(worker, signal.SIGSTOP)
    try:
        with ThreadPoolExecutor(1) as thread:
            answers = thread.submit(
                server.predict_all,
                *("translate", requests),
                num_clients=len(requests),
                options=options,
            )
            wait_for(lambda: server.metrics()["heedful_queue_items"] >= num_queued, START_SECONDS)
            os.kill(worker, signal.SIGCONT)
            return answers.result()
    finally:
        os.kill(worker, signal.SIGCONT)


POISON = """
import sys

if "heedful.parallel" in " ".join(sys.orig_argv):  # a worker
    from heedful.serving.served_models import ServedModel

    predict = ServedModel._predict

    def raise_on_poison(model, items, *others):
        assert all(item.input != "poison" for item in items)
        return predict(model, items, *others)

    ServedModel._predict = raise_on_poison
"""


@pytest.mark.faults
def test_exception_of_one_input_does_not_fail_its_batch(trained, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(POISON)  # Python imports it when it starts
    paths = [str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]
    options = {"environment": {"PYTHONPATH": os.pathsep.join(paths)}, "may_raise": True}
    texts = [f"{first} {second}" for first in "abcd" for second in "abcdefgh"]
    texts[20] = "poison"
    with running(tmp_path, trained, "--timeout", START_SECONDS, **options) as server:
        answers = ask_all_at_once(server, [[text] for text in texts], {}, num_queued=31)
        name = f'heedful_batch_items_bucket{{le="16.0",model="{trained.name}"}}'
        assert server.metrics()[name] <= 1  # the first; all others are in one batch
    failed = answers.pop(20)
    assert (failed.status, failed.json["detail"]) == (500, "the model failed on this input")
    assert failed.headers["content-type"] == "application/problem+json"
    assert "poison" not in failed.body.decode()
    assert [answer.texts for answer in answers] == [[text] for text in texts if text != "poison"]


@pytest.mark.slow
def test_batches_answer_eight_times_as_many_requests():
    """With 32 clients; 1 client waits at most 6 ms longer than a call in Python takes."""
    words = [sys.executable, "-m", "benchmarks.serving", "--backend", "torch"]
    words += ["--clients", "1", "32", "--seconds", "30"]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    output = subprocess.check_output(words, text=True, env=environment)
    comparisons = json.loads(output.splitlines()[-1])["comparisons"]
    assert [figures["model"] for figures in comparisons] == ["GRU", "Transformer"]
    for figures in comparisons:
        assert figures["batching_speedup"] >= 8, output
        assert figures["p99_ratio"] <= 1 / 5, output
        assert figures["added_ms"] <= 6, output


def measure_p99(server, models, seconds=10):
    """Return the 99th percentile of the time of requests, with 8 clients of each model."""
    times, end = {model: [] for model in models}, time.monotonic() + seconds

    def ask(model):
        while time.monotonic() < end:
            times[model].append(server.predict("translate", ["a b c d"], model=model).seconds)

    threads = [threading.Thread(target=ask, args=(model,)) for model in models for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {model: sorted(values)[int(0.99 * len(values))] for model, values in times.items()}


@pytest.mark.slow
def test_two_models_with_equal_load_are_at_most_2_5_times_slower_than_alone(trained, tmp_path):
    with running(tmp_path, f"first={trained}", f"second={trained}") as server:
        measure_p99(server, ["first", "second"], seconds=2)
        alone = {model: measure_p99(server, [model])[model] for model in ("first", "second")}
        together = measure_p99(server, ["first", "second"])
    assert all(together[model] < 2.5 * alone[model] for model in alone), (alone, together)


def test_models_in_one_worker_take_turns(server):
    """Until one of two models with the same load has 80 answers, the other has 32."""
    routes, num_answers, is_over = ("translate", "tag"), Counter(), threading.Event()

    def ask(route):
        while not is_over.is_set():
            assert server.predict(route, ["a b c d"]).status == 200
            num_answers[route] += 1

    threads = [threading.Thread(target=ask, args=(route,)) for route in routes for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_for(lambda: max(num_answers.values(), default=0) >= 80, START_SECONDS)
    counts = dict(num_answers)
    is_over.set()
    for thread in threads:
        thread.join()
    assert min(counts.get(route, 0) for route in routes) > 80 / 2.5
