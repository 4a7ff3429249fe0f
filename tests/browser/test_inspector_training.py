"""The movie of a run that is trained while the inspector shows it."""

import shutil
import subprocess
import sys

import pytest
from playwright.sync_api import expect

import heedful
from heedful.storage.json_files import read_json_lines
from heedful.storage.manifest import SAMPLES
from tests.browser.inspecting import TIMEOUT, settle
from tests.commands import write_recipe
from tests.serving.servers import START_SECONDS, running, wait_for

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on PATH"),
]
STEPS, FURTHER, EVERY = 50, 150, 50
SECONDS = 5  # from a line of the log to the page


def num_shown(slider):
    return int(slider.get_attribute("max")) + 1


def num_logged(run):
    return len({sample["step"] for sample in read_json_lines(run / SAMPLES)})


def test_movie_is_updated_during_training(chromium, tmp_path):
    recipe, run = write_recipe(tmp_path, steps=STEPS, every=EVERY), tmp_path / "run"
    heedful.train(str(recipe), run)
    with running(tmp_path, run, "--ui") as server, chromium.new_context() as context:
        page = context.new_page()
        page.goto(server.url)
        page.wait_for_selector("attention-view", timeout=TIMEOUT)
        settle(page)
        pane = page.get_by_role("region", name="training")
        pane.get_by_text("Training").click(timeout=TIMEOUT)
        slider = pane.get_by_label("Validation")
        first = num_shown(slider)
        command = [sys.executable, "-m", "heedful", "train", str(recipe), "--run", str(run)]
        with subprocess.Popen([*command, "--steps", str(FURTHER)]) as training:
            for count in range(first + 1, first + 1 + (FURTHER - STEPS) // EVERY):
                wait_for(lambda: num_logged(run) >= count, START_SECONDS)  # noqa: B023
                wait_for(lambda: num_shown(slider) >= count, SECONDS)  # noqa: B023
        assert training.returncode == 0
        slider.focus()
        for key, index in (("End", count - 1), ("ArrowLeft", count - 2), ("ArrowRight", count - 1)):
            page.keyboard.press(key)
            assert slider.input_value() == str(index)
            expect(pane.locator("step-player")).to_contain_text(f"{index + 1} of {count}")
