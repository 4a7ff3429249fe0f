"""A worker process: runs of all tasks, results, errors and streams over its pipe."""

import time
from itertools import count
from queue import Queue

import pytest

import heedful
from heedful.errors import RunError
from heedful.serving.protocol import Item, ItemError, PredictCall, ServedRun, StreamCall
from heedful.serving.served_models import ServedModel
from heedful.serving.worker import ServingJob, ServingWorker
from tests.commands import write_random_run
from tests.laws.test_predictor_laws import REQUESTS, SETTINGS, TEXTS

IDS = count(100)


class Worker:
    """A worker whose messages are read one by one."""

    def __init__(self, *runs, **options):
        self.messages, self.num_steps = Queue(), 0
        served = [ServedRun(run.name, [str(run)]) for run in runs]
        job = ServingJob(served, device="cpu", num_threads=1, **options)
        self.process = ServingWorker(job, self.handle)
        self.process.start()
        self.first = self.receive()

    def handle(self, message):
        if message[0] == "steps":
            self.num_steps += message[1]
        else:
            self.messages.put(message)

    def receive(self):
        return self.messages.get(timeout=300)

    def predict(self, model, inputs, call_id=1, **call):
        items = [Item(next(IDS), value, index) for index, value in enumerate(inputs, 1)]
        self.process.send(call_id, PredictCall(model, items, call.pop("options", {}), **call))
        kind, answered, results, _ = self.receive()
        assert (kind, answered) == ("result", call_id)
        return results


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {
        task: write_random_run(folder / task, settings, TEXTS, TEXTS, seed=1)
        for task, settings in SETTINGS.items()
    }


@pytest.fixture(scope="module")
def worker(runs):
    worker = Worker(*runs.values())
    yield worker
    worker.process.kill()


def test_first_message_has_all_models(worker):
    kind, models = worker.first
    assert kind == "ready"
    assert {model.name: model.route for model in models} == {
        "translation": "translate",
        "captioning": "caption",
        "classification": "classify",
        "tagging": "tag",
        "language-modeling": "generate",
        "masked-language-modeling": "fill",
        "forecasting": "forecast",
        "glimpses": "glimpse",
    }
    assert all(model.parameters > 0 and model.step == 0 for model in models)


@pytest.mark.parametrize("task", SETTINGS)
def test_results_are_those_of_the_predictor(task, worker, runs):
    _, values = REQUESTS.get(task, (TEXTS, TEXTS))
    predictor = heedful.load(runs[task], device="cpu")
    results = predictor.predict(map(predictor.parse_json, values))
    assert worker.predict(task, values) == [predictor.to_json(result) for result in results]


def test_error_of_an_item_leaves_the_others(worker):
    results = worker.predict("translation", ["a b", 5, "a " * 2000, "c"])
    assert [isinstance(result, ItemError) for result in results] == [False, True, True, False]
    assert [results[index].status for index in (1, 2)] == [422, 422]
    assert [results[0], results[3]] == [
        worker.predict("translation", [text])[0] for text in ("a b", "c")
    ]


def test_unknown_option_is_an_error_of_each_item(worker):
    first, second = worker.predict("translation", ["a", "b"], options={"beam_sice": 3})
    assert first == second
    assert (first.status, first.field) == (422, "options.beam_sice")


def test_texts_alone_are_those_of_whole_results(worker):
    whole = worker.predict("translation", TEXTS)
    texts = worker.predict("translation", TEXTS, text_only=True)
    assert texts == [{"text": result["text"]} for result in whole]


def test_sampled_results_depend_on_the_number_in_their_request_alone(tmp_path):
    settings = SETTINGS["translation"] | {"decoding": {"sampling": {}, "max_length": 8}}
    run = write_random_run(tmp_path / "sampling", settings, TEXTS, TEXTS, seed=1)
    (predictor, worker) = heedful.load(run, device="cpu"), Worker(run)
    alone = [predictor.to_json(result) for result in predictor.predict(["a b"] * 3)]
    numbers = [3, 1, 1, 2]
    items = [Item(next(IDS), "a b", number) for number in numbers]
    worker.process.send(1, PredictCall("sampling", items, {}))
    _, _, results, _ = worker.receive()
    worker.process.kill()
    assert results == [alone[number - 1] for number in numbers]
    assert len({str(result) for result in alone}) == 3


def test_cancelled_items_end_a_running_call(worker):
    *items, short = (Item(next(IDS), "a b c") for _ in range(5))
    options = {"max_new_tokens": 10_000_000}
    worker.process.send(1, PredictCall("language-modeling", items, options))
    worker.process.send(2, PredictCall("language-modeling", [short], {"max_new_tokens": 1}))
    time.sleep(0.3)
    worker.process.cancel([item.id for item in items])
    _, call_id, results, _ = worker.receive()
    assert (call_id, {result.status for result in results}) == (1, {499})
    assert worker.receive()[1] == 2
    num_steps = worker.num_steps
    worker.predict("language-modeling", ["a", "b c"], options={"max_new_tokens": 7})
    assert worker.num_steps == num_steps + 14


def test_item_on_which_the_model_raises_fails_alone(runs, capsys):
    model = ServedModel(ServedRun("poison", [runs["translation"]]), {"device": "cpu"})
    items = [Item(next(IDS), text) for text in ["a", "b b", "a c", "b a", "a b a"]]
    call = PredictCall("poison", items, {})
    expected = [result["text"] for result in model.predict(call)]
    poison = model.predictor.tokenizers.source.encode("c")[0]

    def raise_on_poison(module, inputs):
        assert not (inputs[0] == poison).any(), "poison"

    model.predictor.model.encoder.register_forward_pre_hook(raise_on_poison)
    first, second, failed, *others = model.predict(call)
    assert [result["text"] for result in (first, second, *others)] == expected[:2] + expected[3:]
    assert (failed.status, "poison" in str(failed)) == (500, False)
    assert "AssertionError: poison" in capsys.readouterr().err


def test_streams_and_batches_take_turns(worker):
    options = {"max_new_tokens": 10_000_000}
    items = [Item(next(IDS), "a") for _ in range(3)]
    for call_id in (1, 2):
        call = StreamCall("language-modeling", items[call_id], options)
        worker.process.send(call_id, call)
    worker.process.send(3, PredictCall("translation", items[:1], {}))
    seen = [worker.receive()[:2] for _ in range(40)]
    assert {("part", 1), ("part", 2), ("result", 3)} == set(seen)
    worker.process.cancel([item.id for item in items[1:]])
    while len({("end", 1), ("end", 2)} & set(seen)) < 2:
        seen.append(worker.receive()[:2])


def test_stream_ends_with_the_result(worker):
    options = {"max_new_tokens": 300}
    worker.process.send(7, StreamCall("language-modeling", Item(next(IDS), "a b"), options))
    messages = []
    while not messages or messages[-1][0] != "end":
        messages.append(worker.receive())
    *parts, end = messages
    assert end == ("end", 7)
    assert {(kind, call_id) for kind, call_id, _ in parts} == {("part", 7)}
    (result,) = worker.predict("language-modeling", ["a b"], options=options)
    assert parts[-1][2].result == result
    assert "".join(part.text for _, _, part in parts) == result["text"]
    assert len(parts) > 2


@pytest.mark.wide
def test_missing_run_fails_with_its_error(tmp_path):
    worker = Worker(tmp_path / "none")
    kind, error = worker.first
    assert (kind, type(error)) == ("failed", RunError)
    assert error.message == "no such folder"
    worker.process.kill()
    kind, error = worker.receive()
    assert (kind, error.returncode) == ("died", -9)
