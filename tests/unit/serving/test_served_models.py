"""The runs of a worker, without its process."""

from itertools import count

import pytest

from heedful import parallel
from heedful.serving.protocol import Item, ItemError, PredictCall, ServedRun, StreamCall
from heedful.serving.served_models import ServedModels
from tests.commands import write_random_run
from tests.laws.test_predictor_laws import SETTINGS, TEXTS

NAMES = ["translation", "language-modeling", "classification"]
IDS = count(1_000)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    runs = [write_random_run(folder / name, SETTINGS[name], TEXTS, TEXTS, seed=1) for name in NAMES]
    served = [ServedRun(run.name, [str(run)], ("a", "b")) for run in runs]
    return ServedModels(served, {"device": "cpu"})


def items(inputs):
    return [Item(next(IDS), value, number) for number, value in enumerate(inputs, 1)]


def test_models_are_described_without_their_folders(models):
    infos = models.answer(None)
    assert [info.name for info in infos] == NAMES
    assert infos[0].capabilities == ["attention", "tree", "stream", "cancel"]
    assert infos[0].mechanisms[0].keys() == {"path", "type", "layer", "heads", "refuses"}
    assert all(info.languages == ("a", "b") and info.parameters > 0 for info in infos)
    for run in models.models.values():
        assert run.run.folders[0] not in str(infos)


@pytest.mark.parametrize("name", NAMES)
def test_layers_are_returned_on_request(models, name):
    plain, traced = (
        models.answer(PredictCall(name, items(["a b"]), {}, need_layers=need_layers))[0]
        for need_layers in (False, True)
    )
    assert "layers" not in plain
    for layer in traced["layers"]:
        for head in layer["weights"]:
            assert [len(row) for row in head] == [len(layer["keys"])] * len(layer["queries"])


@pytest.mark.parametrize(("options", "field"), [({}, "input"), ({"x": 1}, "options.x")])
def test_errors_name_their_field(models, options, field):
    first, second = models.answer(PredictCall("translation", items([5, "a"]), options))
    assert (first.status, first.field) == (422, field)
    assert isinstance(second, ItemError) == bool(options)


@pytest.mark.parametrize("name", ["translation", "language-modeling"])
def test_parts_of_a_stream_are_the_text_of_the_prediction(models, name):
    stream = models.answer(StreamCall(name, items(["a b c"])[0], {}))
    *parts, last = [part for part in stream if part is not None]
    (expected,) = models.answer(PredictCall(name, items(["a b c"]), {}))
    assert "".join(part.text for part in [*parts, last]) == expected["text"]
    assert last.result == expected


def test_stream_of_a_bad_input_is_an_error(models):
    (part,) = models.answer(StreamCall("translation", items([5])[0], {}))
    assert (part.status, part.field) == (422, "input")


def test_cancelled_items_end_within_two_steps(models, monkeypatch):
    model, num_running = models.models["translation"], []
    *leaving, neighbor = items(["a b", "b a", "c a", "a a"])

    def count(num_hypotheses):
        num_running.append(num_hypotheses)
        if len(num_running) == 5:
            parallel.cancelled.update(item.id for item in leaving)

    monkeypatch.setattr(model, "_count_steps", count)
    options = {"beam_size": 1}
    results = models.answer(PredictCall("translation", [*leaving, neighbor], options))
    parallel.cancelled.clear()
    assert num_running[:5] == [4] * 5
    assert set(num_running[5 + 2 :]) == {1}
    assert results[:3] == [ItemError(499, "cancelled")] * 3
    (alone,) = models.answer(PredictCall("translation", [Item(next(IDS), "a a", 4)], options))
    assert results[3]["tokens"] == alone["tokens"]
    assert results[3]["log_probs"] == pytest.approx(alone["log_probs"], abs=2e-6)


def test_cancelled_items_are_not_predicted(models):
    gone, wanted = items(["a b", "c"])
    parallel.cancelled.add(gone.id)
    try:
        first, second = models.answer(PredictCall("translation", [gone, wanted], {}))
        (part,) = models.answer(StreamCall("language-modeling", gone, {}))
    finally:
        parallel.cancelled.discard(gone.id)
    assert first == part == ItemError(499, "cancelled")
    assert second == models.answer(PredictCall("translation", items(["c"]), {}))[0]
