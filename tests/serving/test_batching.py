"""Answers do not depend on what else is asked at the same time, nor on who hangs up."""

import json
import random
import socket
import threading

import pytest

from tests.commands import LETTERS, heedful


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
    answers = server.predict_all("translate", [[texts[i]] for i in order], options=options)
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


def test_models_in_one_worker_take_turns(server):
    """Two models with the same load wait equally long."""
    routes = {"translate": ["a b c d"], "tag": ["a b c d"]}
    seconds = {route: [] for route in routes}

    def ask(route):
        for _ in range(10):
            seconds[route].append(server.predict(route, routes[route]).seconds)

    threads = [threading.Thread(target=ask, args=(route,)) for route in routes for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    middle = sorted(sorted(times)[len(times) // 2] for times in seconds.values())
    assert middle[1] < 2.5 * middle[0]
