"""A worker process: runs of all tasks, results, errors and streams over its pipe."""

from queue import Queue

import pytest

from heedful.errors import RunError
from heedful.serving.protocol import Item, ItemError, PredictCall, ServedRun, StreamCall
from heedful.serving.worker import ServingJob, ServingWorker
from tests.commands import write_random_run
from tests.laws.test_predictor_laws import REQUESTS, SETTINGS, TEXTS


class Worker:
    """A worker whose messages are read one by one."""

    def __init__(self, *runs, **options):
        self.messages = Queue()
        served = [ServedRun(run.name, [str(run)]) for run in runs]
        job = ServingJob(served, device="cpu", num_threads=1, **options)
        self.process = ServingWorker(job, self.messages.put)
        self.process.start()
        self.first = self.receive()

    def receive(self):
        return self.messages.get(timeout=60)

    def predict(self, model, inputs, call_id=1, **call):
        items = [Item(100 + index, value, index) for index, value in enumerate(inputs, 1)]
        self.process.send(call_id, PredictCall(model, items, call.pop("options", {}), **call))
        kind, answered, results = self.receive()
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
    import heedful

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


def test_stream_ends_with_the_result(worker):
    options = {"max_new_tokens": 6}
    worker.process.send(7, StreamCall("language-modeling", Item(1, "a b"), options))
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


def test_missing_run_fails_with_its_error(tmp_path):
    worker = Worker(tmp_path / "none")
    kind, error = worker.first
    assert (kind, type(error)) == ("failed", RunError)
    assert error.message == "no such folder"
    worker.process.kill()
    kind, error = worker.receive()
    assert (kind, error.returncode) == ("died", -9)
