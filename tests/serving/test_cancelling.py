"""Clients that hang up, and streams: the worker stops at once, and others do not notice."""

import json
import socket
import threading
import time

import pytest

from tests.serving.servers import GOLDEN, START_SECONDS, running, wait_for

pytestmark = pytest.mark.wide

NUM_TOKENS = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """Serve a language model that may continue for as long as a client waits."""
    limits = ["--timeout", START_SECONDS, "--max-new-tokens", 10_000_000]
    folder = tmp_path_factory.mktemp("cancelling")
    with running(folder, GOLDEN / "language-modeling", *limits) as server:
        yield server


def send(server, route, **body):
    """Send a request, and return the connection."""
    content = json.dumps(body).encode()
    head = f"POST /v1/{route} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(content)}\r\n"
    connection = socket.create_connection((server.host, int(server.port)), timeout=START_SECONDS)
    connection.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + content)
    return connection


def send_prompt(server, prompt, num_tokens=NUM_TOKENS, **fields):
    options = {"max_new_tokens": num_tokens}
    return send(server, "generate", inputs=[prompt], options=options, **fields)


def count_steps(server):
    return server.metrics()["heedful_decoding_steps_total"]


def steps_of_a_short_request(server):
    """Return by how much the counter grows while 5 tokens are generated."""
    before = count_steps(server)
    assert server.predict("generate", ["the"], options={"max_new_tokens": 5}).status == 200
    return count_steps(server) - before


def test_worker_stops_for_clients_that_hang_up(server):
    """200 of them, while a neighbor in their batch waits for its answer."""
    alone = server.predict("generate", ["neighbor"], options={"max_new_tokens": NUM_TOKENS})
    answers = []
    first = send_prompt(server, "keeps the worker busy while the others queue", 10_000_000)
    wait_for(lambda: not server.metrics()["heedful_queue_items"], START_SECONDS)
    neighbor = threading.Thread(
        target=lambda: answers.append(
            server.predict("generate", ["neighbor"], options={"max_new_tokens": NUM_TOKENS})
        )
    )
    neighbor.start()
    wait_for(lambda: server.metrics()["heedful_queue_items"] == 1, START_SECONDS)
    leaving = [send_prompt(server, f"client {number}") for number in range(200)]
    wait_for(lambda: server.metrics()["heedful_queue_items"] > 64, START_SECONDS)
    num_started = server.metrics()["heedful_queue_duration_seconds_count"]
    first.close()
    wait_for(
        lambda: server.metrics()["heedful_queue_duration_seconds_count"] > num_started,
        START_SECONDS,
    )
    before = count_steps(server)  # with those of the first, which are known when it has ended
    for connection in leaving:
        connection.close()
    neighbor.join()
    assert answers[0].json == alone.json
    wait_for(lambda: steps_of_a_short_request(server) == 5, START_SECONDS)
    assert count_steps(server) - before < 64 * NUM_TOKENS  # not even one whole batch


@pytest.mark.slow
def test_short_request_after_many_that_are_given_up_is_answered_within_a_second(server):
    leaving = [send_prompt(server, f"client {number}", 500) for number in range(200)]
    time.sleep(0.5)
    for connection in leaving:
        connection.close()
    answer = server.predict("generate", ["the"], options={"max_new_tokens": 5})
    assert (answer.status, answer.seconds < 1) == (200, True), answer.seconds


@pytest.mark.slow
def test_first_token_comes_before_a_quarter_of_the_time(server):
    start, moments = time.monotonic(), []
    with send_prompt(server, "the", 3000, stream=True) as connection:
        while part := connection.recv(65536):
            moments += [time.monotonic() - start] * part.count(b"event: token")
            if b"event: done" in part:
                break
        total = time.monotonic() - start
    assert moments[1] < total / 4, (moments[:3], total)  # the first is the prompt


def test_stream_begins_long_before_it_ends(server):
    """The first token is there before a quarter of the steps is made; a hang-up ends the rest."""
    before, num_tokens = count_steps(server), 1_000_000
    with send_prompt(server, "the", num_tokens, stream=True) as connection:
        received = b""
        while received.count(b"event: token") < 2:  # the first is the prompt
            received += connection.recv(4096)
        assert count_steps(server) - before < num_tokens / 4
    wait_for(lambda: steps_of_a_short_request(server) == 5, START_SECONDS)


def test_client_that_does_not_read_its_stream_delays_nobody(server):
    with send_prompt(server, "the", 1_000_000, stream=True) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        connection.recv(1)
        answers = server.predict_all("generate", [["a"]] * 20, options={"max_new_tokens": 5})
        assert {answer.status for answer in answers} == {200}
        assert len({answer.body for answer in answers}) == 1
        assert server.metrics()["heedful_streams"] == 1
    wait_for(lambda: not server.metrics()["heedful_streams"], START_SECONDS)


def measure_p99(server, seconds=10):
    """Return the 99th percentile of the time of requests of 8 clients."""
    end, times = time.monotonic() + seconds, []
    while time.monotonic() < end:
        answers = server.predict_all(
            "generate", [["a"]] * 40, num_clients=8, options={"max_new_tokens": 5}
        )
        times += [answer.seconds for answer in answers]
    return sorted(times)[int(0.99 * len(times))]


@pytest.mark.slow
def test_client_that_reads_a_byte_per_second_does_not_slow_others(server):
    """The front holds what it has not read; as long as its text grows, it takes turns."""
    measure_p99(server, 2)
    alone = measure_p99(server)
    is_over = threading.Event()
    with send_prompt(server, "the", 2000, stream=True) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)

        def read():
            while not is_over.wait(1.0):
                connection.recv(1)

        reader = threading.Thread(target=read)
        reader.start()
        wait_for(lambda: not server.metrics()["heedful_queue_items"], START_SECONDS)
        beside = measure_p99(server)
        is_over.set()
        reader.join()
    assert beside < 1.2 * alone
