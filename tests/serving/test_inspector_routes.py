"""The routes of the inspector: its page, the files of the page, and explanations."""

import os
import signal
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import heedful
from tests.serving.servers import START_SECONDS, running, wait_for

pytestmark = pytest.mark.wide

EDIT = {"step": 0, "set": {"0": 1.0}}


@pytest.fixture(scope="module")
def inspector(tmp_path_factory, trained):
    folder = tmp_path_factory.mktemp("inspector")
    with running(folder, f"m={trained}", "--ui", "--timeout", START_SECONDS) as server:
        yield server


def explain(server, **fields):
    return server.post("/v1/explain", {"model": "m", "input": "a b", **fields})


def test_page_and_its_files_are_served(inspector):
    page = inspector.get("/")
    assert page.headers["content-type"].startswith("text/html")
    for name in ("inspector-page.js", "inspector.css", "palette.css"):
        assert f"/page/{name}" in page.body.decode()
        assert inspector.get(f"/page/{name}").status == 200
    assert inspector.get("/page/page.html").status == 404
    assert inspector.get("/page/..%2f..%2fversion.py").status == 404


def test_explanation_has_the_edited_row(inspector):
    (layer,) = [layer for layer in explain(inspector).json["layers"] if layer["is_default"]]
    edited = explain(inspector, edits=[{**EDIT, "layer": layer["path"]}])
    (changed,) = [layer for layer in edited.json["layers"] if layer["is_default"]]
    assert changed["weights"][0][0][0] == 1
    assert layer["weights"][0][0][0] != 1


@pytest.mark.parametrize(("format", "start"), [("svg", b"<svg"), ("html", b"<!doctype html>")])
def test_figure_of_an_explanation_is_a_file(inspector, format, start):
    answer = inspector.post(
        "/v1/render", {"model": "m", "input": "a b", "format": format, "kind": "cross"}
    )
    assert answer.body.startswith(start)
    assert answer.headers["content-disposition"] == f"attachment; filename=attention.{format}"


def test_unknown_kind_of_figure_is_named(inspector):
    body = {"model": "m", "input": "a b", "format": "svg", "kind": "none"}
    assert inspector.post("/v1/render", body).status == 422


@pytest.mark.parametrize(
    ("fields", "status", "field"),
    [
        ({"model": "none"}, 404, "model"),
        ({"input": 3}, 422, "input"),
        ({"edits": [{"layer": "none", **EDIT}]}, 422, "edits[0].layer"),
        ({"options": {"beam_size": 1000}}, 422, "options.beam_size"),
        ({"input": "a " * 5000}, 422, "inputs.0"),
    ],
    ids=["model", "input", "edits", "options", "length"],
)
def test_wrong_request_names_the_field(inspector, fields, status, field):
    answer = explain(inspector, **fields)
    assert (answer.status, answer.json["field"]) == (status, field)


def test_explanations_go_on_after_their_process_was_killed(inspector):
    for worker in inspector.worker_pids()[1:]:
        os.kill(worker, signal.SIGKILL)
    wait_for(lambda: explain(inspector).status == 200, START_SECONDS)
    assert inspector.get("/readyz").status == 200


@pytest.mark.slow
def test_explanation_timeout_kills_only_inspector_process(trained, tmp_path):
    with running(tmp_path, f"m={trained}", "--ui", "--timeout", 10) as server:
        wait_for(lambda: explain(server).status == 200, START_SECONDS)
        predicting, *others = server.worker_pids()
        for worker in others:
            os.kill(worker, signal.SIGSTOP)  # as good as an edit without end
        with ThreadPoolExecutor(1) as clients:
            late = clients.submit(explain, server)
            while not late.done():
                assert server.predict("translate", ["a b"]).status == 200
        assert late.result().status == 504
        assert "takes too long" in late.result().json["detail"]
        wait_for(lambda: explain(server).status == 200, START_SECONDS)
        assert predicting in server.worker_pids()


def test_checkpoint_explanation_equal_to_python(inspector, trained):
    *_, step = inspector.get("/v1/runs/m/checkpoints").json["data"]
    expected = heedful.load(trained, device="cpu", checkpoint=step).explain("a b")
    shown = explain(inspector, checkpoint=step).json
    assert shown["result"]["text"] == expected.result.text
    for layer, other in zip(shown["layers"], expected.layers, strict=True):
        np.testing.assert_allclose(layer["weights"], other.weights, atol=1e-5)
    answer = explain(inspector, checkpoint=step + 1)
    assert (answer.status, answer.json["field"]) == (422, "checkpoint")
    assert str(step) in answer.json["hint"]


def test_description_names_the_routes(inspector):
    paths = inspector.get("/openapi.json").json["paths"]
    assert {"/v1/explain", "/v1/translate", "/v1/completions", "/readyz"} <= paths.keys()


def test_samples_of_a_run_are_those_after_a_step(inspector):
    samples = inspector.get("/v1/runs/m/samples").json["data"]
    last = max((sample["step"] for sample in samples), default=0)
    assert inspector.get(f"/v1/runs/m/samples?after={last}").json["data"] == []
    assert inspector.get("/v1/runs/none/samples").status == 404
