"""The queue: which inputs share a batch, whose turn it is, and what follows a worker's death."""

import asyncio
from collections import Counter

import pytest

from heedful.serving.batch_speed import BatchTime
from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import ItemError, ModelInfo
from heedful.serving.scheduler import Scheduler
from heedful.serving.settings import ServerSettings

MODELS = [ModelInfo(name, "t", "tag", 1, 1, [], [], {}, "an example") for name in ("m", "n")]


class Link:
    """A worker that answers, or dies, when a test says so."""

    def __init__(self):
        self.ready, self.died = asyncio.Future(), asyncio.Future()
        self.ready.set_result(MODELS)
        self.calls, self.answer, self.num_streams, self.answered_at = [], None, 0, 0.0
        self.answer_time, self.seeds = BatchTime(0.0, 0.0), []

    @property
    def is_idle(self):
        return self.answer is None

    def predict(self, call):
        self.calls.append((call.model, [item.input for item in call.items]))
        self.seeds += [item.seed for item in call.items]
        self.answer = asyncio.Future()
        return self.answer

    async def finish(self):
        """Answer the batch that it has, and let the scheduler send the next."""
        answer, self.answer = self.answer, None
        self.answered_at = asyncio.get_running_loop().time()
        answer.set_result([{"text": text} for text in self.calls[-1][1]])
        await settle()

    def cancel(self, item_ids):
        """Cancel nothing."""


async def settle():
    for _ in range(5):
        await asyncio.sleep(0)


class Queue:
    """A scheduler, and the requests that wait for it."""

    def __init__(self, **settings):
        self.metrics = ServerMetrics()
        self.scheduler = Scheduler(ServerSettings(max_wait_ms=0, **settings), self.metrics)
        self.link = self.replace_worker()

    def replace_worker(self):
        self.link = Link()
        self.scheduler.add_worker(self.link)
        return self.link

    async def ask(self, *inputs, model="m", **options):
        request = asyncio.ensure_future(self.scheduler.predict(model, inputs, {}, **options))
        await settle()
        return request

    async def kill(self):
        """Let the worker die with its batch, and start another."""
        link, answer = self.link, self.link.answer
        self.scheduler.remove_worker(link)
        answer.set_exception(ProblemError(503, "died"))
        await settle()
        self.replace_worker()


def run(test):
    """Run an asynchronous test."""

    def wrapped():
        asyncio.run(test())

    wrapped.__name__ = test.__name__
    return wrapped


@run
async def test_models_with_equal_load_take_turns():
    queue = Queue(max_batch=4)
    requests = [await queue.ask(f"{i}", model="mn"[i % 2]) for i in range(40)]
    while queue.link.answer:
        await queue.link.finish()
    await asyncio.gather(*requests)
    assert [model for model, _ in queue.link.calls] == [*"mnmnmnmnmnm"]
    assert Counter(model for model, inputs in queue.link.calls for _ in inputs) == {
        "m": 20,
        "n": 20,
    }


@run
async def test_oldest_input_is_in_the_next_batch_whatever_its_model():
    queue = Queue(max_batch=4)
    requests = [await queue.ask("first", model="n"), *[await queue.ask("m") for _ in range(12)]]
    requests.insert(5, await queue.ask("late", model="n"))
    while queue.link.answer:
        await queue.link.finish()
    await asyncio.gather(*requests)
    assert [model for model, _ in queue.link.calls] == ["n", "m", "m", "m", "n"]


@run
async def test_requests_with_other_seeds_share_a_batch():
    queue = Queue()
    requests = [await queue.ask("a", "x", seeds=(5, 6)), await queue.ask("b", "x")]
    await queue.ask("c", "d", seeds=(7, 8))
    while queue.link.answer:
        await queue.link.finish()
    assert [len(await request) for request in requests] == [2, 2]
    assert queue.link.calls == [("m", ["a", "x"]), ("m", ["b", "x", "c", "d"])]
    assert queue.link.seeds == [5, 6, 1, 2, 7, 8]


@run
async def test_queued_and_running_inputs_outlive_their_worker():
    queue = Queue(max_batch=2)
    requests = [await queue.ask(text) for text in "abcde"]
    await queue.kill()
    while queue.link.answer:
        await queue.link.finish()
    assert [(await request)[0]["text"] for request in requests] == [*"abcde"]
    assert [text for _, batch in queue.link.calls for text in batch] == [*"abcde"]
    assert queue.metrics.queue_items._value.get() == 0


@run
async def test_input_that_kills_workers_fails_alone():
    queue = Queue(max_batch=4)
    requests = [await queue.ask(text) for text in ["a", "poison", "b", "c", "d"]]
    num_deaths = 0
    while queue.link.answer:
        if "poison" in queue.link.calls[-1][1]:
            num_deaths += 1
            await queue.kill()
        else:
            await queue.link.finish()
    results = [(await request)[0] for request in requests]
    assert num_deaths == 3  # twice in a batch, once alone
    assert isinstance(results[1], ItemError)
    assert results[1].status == 500
    assert [result["text"] for result in results[:1] + results[2:]] == ["a", "b", "c", "d"]


@run
async def test_request_that_is_given_up_is_not_retried():
    queue = Queue(max_batch=2)
    requests = [await queue.ask("a"), await queue.ask("b")]
    requests[0].cancel()
    await settle()
    await queue.kill()
    await queue.link.finish()
    assert (await requests[1])[0]["text"] == "b"
    assert queue.link.calls == [("m", ["b"])]


@run
async def test_new_requests_are_refused_while_no_worker_is_ready():
    queue = Queue()
    queue.scheduler.remove_worker(queue.link)
    with pytest.raises(ProblemError, match="no worker is ready") as problem:
        await queue.scheduler.predict("m", ["a"], {})
    assert (problem.value.status, problem.value.retry_after) == (503, 1.0)


@run
async def test_speed_is_measured_once_per_model():
    queue = Queue()
    link = Link()
    measuring = asyncio.ensure_future(queue.scheduler.measure(link))
    await settle()
    while not measuring.done():
        await link.finish()
    assert [(model, len(inputs)) for model, inputs in link.calls] == [
        ("m", 1), ("m", 8), ("n", 1), ("n", 8)
    ]  # fmt: skip
    await queue.scheduler.measure(link)
    assert len(link.calls) == 4
