"""Every task over HTTP: what a server answers is what the command line and Python return."""

import base64
import json
from pathlib import Path

import numpy as np
import pytest

import heedful as package
from heedful.plotting.raster import encode_png
from heedful.tasks.registry import task_routes
from tests.commands import heedful
from tests.serving.servers import GOLDEN

INPUTS = GOLDEN.parent / "inputs"
NUM_INPUTS = 20
TEXTS = {
    "translation-recurrent": ("translate", "dates.txt"),
    "translation-transformer": ("translate", "latin.txt"),
    "classification": ("classify", "sums.txt"),
    "tagging": ("tag", "letters.txt"),
}


def repeat(values):
    return [values[index % len(values)] for index in range(NUM_INPUTS)]


def test_one_server_has_a_model_of_every_task(server):
    models = server.get("/v1/models").json["data"]
    assert {model["route"] for model in models} == {
        f"/v1/{name}" for name in task_routes().values()
    }
    assert models[0]["id"] == "letters"
    assert server.get("/v1/models/letters").json == models[0]


@pytest.mark.parametrize("run", TEXTS)
def test_texts_get_the_json_of_the_command_line(server, run, tmp_path, capsys, monkeypatch):
    command, name = TEXTS[run]
    lines = repeat((INPUTS / name).read_text().splitlines())
    path = tmp_path / "texts.txt"
    path.write_text("\n".join(lines) + "\n")
    printed = heedful(capsys, monkeypatch, command, GOLDEN / run, path, "--json", "--device", "cpu")
    answer = server.predict(command, lines, model=run)
    assert answer.status == 200, answer.body
    assert answer.json["results"] == [json.loads(line) for line in printed.out.splitlines()]


def test_series_get_the_json_of_the_command_line(server, capsys, monkeypatch):
    run = GOLDEN / "forecasting"
    printed = heedful(
        capsys, monkeypatch, "forecast", run, INPUTS / "series.csv", "--json", "--device", "cpu"
    )
    expected = [json.loads(line) for line in printed.out.splitlines()]
    forecaster = package.load(run, device="cpu")
    series = [series_to_json(series) for series in forecaster.read_file(str(INPUTS / "series.csv"))]
    answer = server.predict("forecast", repeat(series))
    assert answer.status == 200, answer.body
    assert answer.json["results"] == repeat(expected)


def series_to_json(series):
    values = [None if value != value else value for value in series.values.tolist()]
    return {"id": series.id, "time": series.format_times(0, len(values)), "value": values}


def test_images_get_the_json_of_the_command_line(server, capsys, monkeypatch):
    paths = sorted((INPUTS / "images").glob("*.png"))
    printed = heedful(
        capsys, monkeypatch, "caption", GOLDEN / "captioning", *paths, "--json", "--device", "cpu"
    )
    expected = [json.loads(line) for line in printed.out.splitlines()]
    images = [base64.b64encode(path.read_bytes()).decode() for path in paths]
    answer = server.predict("caption", repeat(images))
    assert answer.status == 200, answer.body
    results = [drop(result, "image") for result in answer.json["results"]]
    assert results == repeat([drop(result, "image") for result in expected])


def test_image_may_be_longer_than_a_text(server):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    image = base64.b64encode(encode_png(noise)).decode()
    assert len(image) > 5000  # --max-characters, of texts
    assert server.predict("caption", [image]).status == 200


COMMANDS = {
    "classify": ("classification", INPUTS / "sums.txt"),
    "classify --json": ("classification", INPUTS / "sums.txt"),
    "tag": ("tagging", INPUTS / "letters.txt"),
    "tag --conll": ("tagging", INPUTS / "letters.txt"),
    "tag --json": ("tagging", INPUTS / "letters.txt"),
    "translate --n-best 2": ("translation-transformer", INPUTS / "latin.txt"),
    "translate --json": ("translation-recurrent", INPUTS / "dates.txt"),
    "forecast": ("forecasting", INPUTS / "series.csv"),
    "forecast --json --quantiles 0.2,0.7": ("forecasting", INPUTS / "series.csv"),
    "caption": ("captioning", INPUTS / "images"),
    "caption --json --n-best 2": ("captioning", INPUTS / "images"),
    "glimpse": ("glimpses", INPUTS / "digits-images-idx3-ubyte.gz"),
    "glimpse --json --count 3": ("glimpses", INPUTS / "digits-images-idx3-ubyte.gz"),
    "generate --max-new-tokens 20": ("language-modeling", "The "),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_command_prints_the_same_with_a_server(server, command, capsys, monkeypatch):
    run, source = COMMANDS[command]
    name, *options = command.split()
    local = heedful(capsys, monkeypatch, name, GOLDEN / run, source, *options, "--device", "cpu")
    remote = heedful(capsys, monkeypatch, name, run, source, *options, "--server", server.url)
    assert (local.code, remote.code) == (0, 0), (local.err, remote.err)
    assert remote.out == local.out
    assert remote.out


@pytest.mark.parametrize(
    ("command", "run", "source", "option"),
    [
        ("generate", "language-modeling", "a", "--num-samples=2"),
        ("forecast", "forecasting", "series.csv", "--backtest=1"),
        ("tag", "tagging", "letters.txt", "--input-format=conll"),
        ("caption", "captioning", "a.png", "--draw"),
        ("classify", "classification", "sums.txt", "--ensemble-with=other"),
    ],
)
def test_option_that_needs_the_run_is_refused_with_a_server(
    command, run, source, option, capsys, monkeypatch
):
    url = "http://127.0.0.1:9"
    result = heedful(capsys, monkeypatch, command, run, source, option, "--server", url)
    assert result.code == 2
    assert f"{option.split('=')[0]}" in result.err
    assert "works only without --server" in result.err


def drop(result, name):
    return {key: value for key, value in result.items() if key != name}


@pytest.mark.parametrize(
    ("route", "run", "inputs", "options"),
    [
        ("fill", "masked-language-modeling", ["Cotidie [MASK] est.", "[MASK]"], {}),
        ("generate", "language-modeling", ["The ", "a"], {"max_new_tokens": 9, "seed": 3}),
    ],
)
def test_results_are_those_of_python(server, route, run, inputs, options):
    predictor = package.load(GOLDEN / run, device="cpu")
    requests = map(predictor.parse_json, repeat(inputs))
    expected = [r.to_json() for r in predictor.predict(requests, predictor.parse_options(options))]
    answer = server.predict(route, repeat(inputs), options=options)
    assert answer.status == 200, answer.body
    assert answer.json["results"] == json.loads(json.dumps(expected))


def test_glimpses_get_the_json_of_the_command_line(server, capsys, monkeypatch):
    run, path = GOLDEN / "glimpses", INPUTS / "digits-images-idx3-ubyte.gz"
    words = ["glimpse", run, path, "--json", "--device", "cpu", "--count", NUM_INPUTS]
    printed = heedful(capsys, monkeypatch, *map(str, words))
    expected = [json.loads(line) for line in printed.out.splitlines()]
    images = list(package.load(run, device="cpu").read_file(str(path)))[:NUM_INPUTS]
    values = [{"pixels": image.pixels.tolist(), "label": int(image.label)} for image in images]
    answer = server.predict("glimpse", values)
    assert answer.status == 200, answer.body
    assert answer.json["results"] == [drop(result, "target") for result in expected]


def test_options_change_the_results_of_a_request(server):
    answer = server.predict("translate", ["a b c"], options={"beam_size": 3, "n_best": 3})
    assert len(answer.json["results"][0]["alternatives"]) == 2


def test_text_only_returns_texts(server):
    texts = ["a b c", "h g f e"]
    assert server.predict("translate", texts, text_only=True).json["results"] == [
        {"text": text} for text in texts
    ]


def test_attention_returns_layers(server):
    result = server.predict("translate", ["a b c"], attention=True).json["results"][0]
    assert result != server.predict("translate", ["a b c"]).json["results"][0]


def read_events(answer):
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in answer.body.decode().split("\n\n") if block]
    pairs = [(name.removeprefix("event: "), data.removeprefix("data: ")) for name, data in events]
    return [(name, json.loads(data)) for name, data in pairs]


def test_streamed_text_is_that_of_the_result(server):
    fields = {"inputs": ["The "], "options": {"max_new_tokens": 300, "temperature": 0}}
    *tokens, (name, done) = read_events(server.post("/v1/generate", {**fields, "stream": True}))
    assert name == "done"
    assert len(tokens) > 1
    assert {name for name, _ in tokens} == {"token"}
    text = "".join(part["text"] for _, part in tokens)
    whole = server.post("/v1/generate", fields).json["results"][0]
    assert done["result"] == whole
    assert text
    assert whole["text"].endswith(text)


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"inputs": ["a"], "model": "none"}, 404, "model"),
        ({"inputs": ["a"], "model": "tagging"}, 404, "model"),
        ({"inputs": []}, 422, "inputs"),
        ({"inputs": "a"}, 422, "inputs"),
        ({}, 422, "inputs"),
        ({"inputs": ["a"], "beam_size": 2}, 422, "beam_size"),
        ({"inputs": ["a"], "options": {"beam_sice": 2}}, 422, "options.beam_sice"),
        ({"inputs": ["a"], "options": {"beam_size": 0}}, 422, "options.beam_size"),
        ({"inputs": ["a", 5]}, 422, "inputs.1"),
        ({"inputs": ["a", "b"], "stream": True}, 422, "inputs"),
        ({"inputs": ["a"] * 513}, 422, "inputs"),
        ({"inputs": ["a", "b" * 5001]}, 422, "inputs.1"),
    ],
)
def test_invalid_request_is_a_problem_that_names_the_field(server, fields, status, field):
    answer = server.post("/v1/translate", fields)
    assert answer.headers["content-type"] == "application/problem+json"
    assert (answer.status, answer.json["status"], answer.json["field"]) == (status, status, field)
    assert len(answer.body) < 1000


def test_front_process_maps_no_torch(server):
    assert "torch" not in Path(f"/proc/{server.process.pid}/maps").read_text()
    (worker,) = server.worker_pids()
    assert "torch" in Path(f"/proc/{worker}/maps").read_text()
