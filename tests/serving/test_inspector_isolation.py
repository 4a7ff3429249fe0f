"""Predictions do not wait for explanations, which have a process that gives way."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tests.browser.inspecting import draw_text, write_long_run
from tests.serving.servers import running

NUM_TOKENS = 8192
SECONDS = 8.0
EDIT = {"layer": "*", "step": 5000, "set": {"321": 0.9}}


def translate_for(server, seconds=SECONDS, is_done=lambda: False):
    """Return the seconds of each of the translations that one client asks for."""
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end and not is_done():
        times.append(server.predict("translate", ["a b c"]).seconds)
        time.sleep(0.01)
    return times


@pytest.mark.slow
def test_translations_beside_a_long_explanation_are_as_fast_as_alone(trained, tmp_path):
    """For an idle machine; `pytest -s` shows the figures of three rounds."""
    long_run = write_long_run(tmp_path / "long", NUM_TOKENS)
    limits = "--ui", "--max-characters", 10_000, "--timeout", 600
    body = {"model": "long", "input": draw_text(NUM_TOKENS), "edits": [EDIT]}
    body["options"] = {"max_new_tokens": 0}
    alone, beside = [], []
    with (
        running(tmp_path, f"m={trained}", f"long={long_run}", *limits) as server,
        ThreadPoolExecutor(1) as clients,
    ):
        server.post("/v1/explain", {**body, "input": "a b", "edits": []})
        translate_for(server, 2)
        for _ in range(3):
            alone += translate_for(server)
            explanation = clients.submit(server.post, "/v1/explain", body)
            beside += translate_for(server, 600, explanation.done)
            assert explanation.result().status == 200
            assert explanation.result().seconds > 3
    figures = [float(np.quantile(times, 0.99)) for times in (alone, beside)]
    print(f"p99 of {len(alone)} alone and {len(beside)} beside: {figures}")
    assert figures[1] <= 1.2 * figures[0]
