"""Admission, deadlines and fairness, in virtual time: a worker whose batches take a known time."""

import asyncio
import random
from collections import Counter

import pytest

from heedful.serving.batch_speed import BatchTime, input_cost
from heedful.serving.metrics import ServerMetrics
from heedful.serving.problems import ProblemError
from heedful.serving.protocol import ModelInfo
from heedful.serving.scheduler import Scheduler
from heedful.serving.settings import ServerSettings

TEXT = "a" * 64
MODELS = [ModelInfo(name, "t", "tag", 1, 1, [], [], {}, "an example") for name in ("m", "n")]


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that never waits: its clock jumps to the next timer."""

    now = 0.0

    def time(self):
        return self.now

    def _run_once(self):
        if not self._ready and self._scheduled:
            self.now = max(self.now, self._scheduled[0].when())
        super()._run_once()


class Link:
    """A worker that takes a time per batch and per character, which changes by chance."""

    num_streams, answered_at, slow_until = 0, 0.0, 0.0

    def __init__(self, *, noise=0.0):
        self._loop = asyncio.get_running_loop()
        self.ready, self.died = asyncio.Future(), asyncio.Future()
        self.ready.set_result(MODELS)
        self.is_idle, self._noise, self._chance = True, noise, random.Random(1)

    def predict(self, call):
        answer, self.is_idle = asyncio.Future(), False
        factor = self._chance.uniform(1 - self._noise, 1 + self._noise)
        cost = sum(input_cost(item.input) for item in call.items)
        seconds = factor * (0.02 + 0.0004 * cost)
        wait = 3 * seconds if self._loop.time() < self.slow_until else seconds
        time = BatchTime(wait, seconds)
        self._loop.call_later(wait, self._answer, answer, len(call.items), time)
        return answer

    def _answer(self, answer, count, time):
        self.is_idle, self.answered_at, self.answer_time = True, self._loop.time(), time
        answer.set_result([{"text": ""}] * count)

    def cancel(self, item_ids):
        """Cancel nothing."""


async def start(noise=0.0, **settings):
    scheduler = Scheduler(ServerSettings(**settings), ServerMetrics())
    link = Link(noise=noise)
    await scheduler.measure(link)
    scheduler.add_worker(link)
    return scheduler


def run(test):
    """Run a coroutine in virtual time."""
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(test)
    finally:
        loop.close()


async def ask(scheduler, num_inputs, delay):
    """Return when a request is answered, its status and its Retry-After."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(delay)
    try:
        await scheduler.predict("m", [TEXT] * num_inputs, {})
    except ProblemError as problem:
        return loop.time(), problem.status, problem.retry_after
    return loop.time(), 200, None


@pytest.mark.parametrize("noise", [0.0, 0.4])
@pytest.mark.parametrize("timeout", [3.0, 30.0])
@pytest.mark.parametrize("slow_seconds", [0.0, 0.6])
def test_flood_is_refused_at_once_with_the_real_wait(noise, timeout, slow_seconds):
    """Also if it slows down the worker while it arrives, as clients of the same machine do."""

    async def flood():
        scheduler = await start(noise, timeout=timeout, max_batch=8)
        start_time = asyncio.get_running_loop().time()
        scheduler.links[0].slow_until = start_time + slow_seconds
        requests = [ask(scheduler, 8, delay=0.001 * index) for index in range(300)]
        return start_time, await asyncio.gather(*requests)

    start_time, answers = run(flood())
    statuses = Counter(status for _, status, _ in answers)
    assert statuses.keys() == {200, 429}  # no 504
    end = max(time for time, status, _ in answers if status == 200)
    assert min(time for time, status, _ in answers if status == 429) - start_time < 0.6
    assert end - start_time > 0.3 * timeout  # what can be answered is admitted
    for time, status, retry_after in answers:
        if status == 429:
            assert retry_after == pytest.approx(end - time, rel=0.5)


@pytest.mark.parametrize("seconds", [0.7, 1.0, 1.5, 1.7, 1.8, 2.6, 15.0, 900.4])
def test_whole_seconds_of_retry_after_are_near_the_estimate(seconds):
    headers = ProblemError(429, "busy", retry_after=seconds).to_headers("/v1/tag")
    assert int(headers["retry-after"]) == pytest.approx(seconds, rel=0.45)


async def serve_clients(models, num_clients):
    """Return the 99th percentile of the time of requests, by model."""
    scheduler = await start(0.4)
    loop, seconds = asyncio.get_running_loop(), {model: [] for model in models}
    chance = random.Random(2)

    async def client(model):
        for _ in range(50):
            await asyncio.sleep(chance.expovariate(20))
            start_time = loop.time()
            await scheduler.predict(model, ["a" * chance.randint(1, 100)], {})
            seconds[model].append(loop.time() - start_time)

    await asyncio.gather(*(client(model) for model in models for _ in range(num_clients)))
    return {model: sorted(times)[int(0.99 * len(times))] for model, times in seconds.items()}


def test_two_models_with_equal_load_are_at_most_2_5_times_slower_than_alone():
    alone = {model: run(serve_clients(model, 8))[model] for model in "mn"}
    together = run(serve_clients("mn", 8))
    for model in "mn":
        assert together[model] < 2.5 * alone[model]
    slower, faster = max(together.values()), min(together.values())
    assert slower < 1.2 * faster


async def ask_again_and_again(num_clients):
    """Return the times of requests, and the sizes of batches, of clients that ask when answered."""
    scheduler, sizes, seconds = await start(), [], []
    (link,), loop = scheduler.links, asyncio.get_running_loop()
    predict = link.predict
    link.predict = lambda call: sizes.append(len(call.items)) or predict(call)

    async def client(index):
        await asyncio.sleep(0.001 * index)
        for _ in range(20):
            start_time = loop.time()
            await scheduler.predict("m", [TEXT], {})
            seconds.append(loop.time() - start_time)
            await asyncio.sleep(0.001 * (1 + index))  # one process reads all of them

    await asyncio.gather(*map(client, range(num_clients)))
    return seconds, sizes


def test_client_that_is_alone_does_not_wait_for_others():
    seconds, sizes = run(ask_again_and_again(1))
    assert max(seconds) == pytest.approx(0.02 + 0.0004 * input_cost(TEXT))
    assert set(sizes) == {1}


@pytest.mark.parametrize("num_clients", [8, pytest.param(32, marks=pytest.mark.slow)])
def test_clients_that_ask_side_by_side_share_batches(num_clients):
    """Also if it takes longer than `max_wait_ms` to read what they ask."""
    _, sizes = run(ask_again_and_again(num_clients))
    assert sum(sizes) / len(sizes) > 0.8 * num_clients
