"""Speed of pages that run a model: opening, tokens per second, beam search, and typing.

    python -m benchmarks.pages [--rounds 3] [--run RUN]

Without a run: the default recipe for a CPU with 1.5 million random parameters, and the model that
comes with heedful. Decoding is timed in Node.js, by the worker that the page carries; opening and
typing in Chromium, where it is installed. A key counts until the next frame is painted.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.harness import Table, describe_machine
from heedful.conversion.page_export import PAGE_FILE, render_model_page
from heedful.plotting.page_runner import PageRunner
from heedful.recipes import load_recipe
from heedful.runs import Run, load_run
from heedful.storage.state_dict import unique_weights
from heedful.tasks.task_data import VocabSizes

UNITS, NUM_TOKENS = 160, 783  # 1,500,274 parameters
NUM_TEXTS, MAX_LENGTH = 20, 30
TYPED = "Puella rosam portat et canis in horto ambulat."
_TIMER = """() => {
  window.delays = [];
  addEventListener("keydown", () => {
    const start = performance.now();
    requestAnimationFrame(() => setTimeout(() => window.delays.push(performance.now() - start)));
  }, true);
}"""


def write_run(folder: Path) -> Path:
    """Write a run of the default recipe with 1.5 million random parameters."""
    torch.manual_seed(0)
    sizes = {
        f"model.{part}.{name}": UNITS
        for part in ("encoder", "decoder")
        for name in ("embedding_size", "hidden_size")
    }
    words = {f"tokenizers.{side}": {"type": "word"} for side in ("source", "target")}
    data = load_recipe("latin-demo", {"data.train.num_examples": 3000}).data
    recipe = load_recipe("default", {**sizes, **words})
    pairs = data.train.read() if data.train else []
    texts = [pair.source for pair in pairs], [pair.target for pair in pairs]
    fillers = [f"word{number}" for number in range(NUM_TOKENS)]
    tokenizers = recipe.tokenizers.train(*([*side, *fillers] for side in texts))
    run = Run(folder)
    folder.mkdir(parents=True)
    run.initialize(recipe, tokenizers)
    model = recipe.task.build_model(recipe, VocabSizes.from_tokenizers(tokenizers))
    run.save_model(unique_weights(model), step=0)
    return folder


def texts_to_translate() -> list[str]:
    """Return Latin sentences."""
    test = load_recipe("latin-demo").data.test
    assert test is not None
    return [pair.source for pair in test.read()[:NUM_TEXTS]]


def time_decoding(runner: PageRunner, page: Path, sources: Sequence[Sequence[int]]) -> list[float]:
    """Return seconds to open a page, and tokens per second of greedy search and of a beam of 4."""
    limits = [MAX_LENGTH] * len(sources)
    requests: list[tuple[str, dict[str, Any]]] = [
        ("outputs", {"inputs": sources, "maxLengths": limits, "options": {"beam_size": size}})
        for size in (1, 1, 4)  # the first is compiled while it runs
    ]
    opened, _, *measured = runner.answer(page, requests)
    rates = [
        sum(len(output["tokens"]) + 1 for output in answer["result"]) / answer["seconds"]
        for answer in measured
    ]
    return [opened["seconds"], *rates]


def time_typing(page: Path) -> list[float] | None:
    """Return milliseconds until a page is ready, and of each key until a frame is painted."""
    command = shutil.which("chromium")
    if command is None:
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=command, args=["--no-sandbox"])
        tab = browser.new_context(offline=True).new_page()
        tab.goto(page.as_uri())
        tab.locator("model-view.ready").wait_for(timeout=120_000)
        ready = tab.evaluate("performance.now()")
        tab.evaluate(_TIMER)
        tab.locator("textarea").click()
        tab.keyboard.type(TYPED, delay=30)
        tab.wait_for_timeout(500)
        delays: list[float] = tab.evaluate("window.delays")
        browser.close()
    return [ready, *delays]


def measure(name: str, run_dir: Path, rounds: int) -> tuple[list[str], list[str]]:
    """Return the rows of a run in both tables: medians over rounds."""
    runner, run = PageRunner.find(), load_run(run_dir)
    assert runner is not None, "Node.js 18 or newer is needed"
    count = sum(weight.numel() for weight in unique_weights(run.model).values())
    sources = run.tokenizers.source.encode_batch(texts_to_translate())
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / PAGE_FILE
        page.write_text(render_model_page(run, "fp32"), encoding="utf-8")
        times = [time_decoding(runner, page, sources) for _ in range(rounds)]
        size = f"{page.stat().st_size / 1e6:.1f}"
        typed = [one for _ in range(rounds) if (one := time_typing(page))]
    opened, greedy, beam = (median(column) for column in zip(*times, strict=True))
    ratio = median(one[1] / one[2] for one in times)
    decoding = [f"{count:,}", size, f"{opened:.2f}", f"{greedy:,.0f}", f"{beam:,.0f}"]
    keys = [delay for one in typed for delay in one[1:]]
    figures = [median(one[0] for one in typed) / 1000, median(keys), max(keys)] if keys else []
    return [name, *decoding, f"{ratio:.1f}"], [name, *(f"{figure:.1f}" for figure in figures)]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--run", type=Path, help="run folder of a translator, instead of both")
    arguments = parser.parse_args()
    print(describe_machine())
    with tempfile.TemporaryDirectory() as folder:
        runs = {"default, 1.5 M": write_run(Path(folder) / "run"), "demo": Path("demo")}
        if arguments.run:
            runs = {arguments.run.name: arguments.run}
        rows = [measure(name, run_dir, arguments.rounds) for name, run_dir in runs.items()]
    columns = ("parameters", "MB", "opened in s", "greedy tokens/s", "beam 4 tokens/s", "ratio")
    decoding = Table("model", *columns)
    for row, _ in rows:
        decoding.add(*row)
    typing = Table("model", "ready in Chromium in s", "ms a key, median", "ms a key, largest")
    for _, row in rows:
        if row[1:]:
            typing.add(*row)


if __name__ == "__main__":
    main()
