"""Count the source files whose functions run during training, prediction and beam search.

The number says how many files a reader opens to follow a path through the code. Code that runs
while a module is imported does not count. Paths are traced on the CPU with built-in data: `heedful
train` up to the end of the first optimizer step, one further optimizer step, `heedful translate`
or `heedful caption` of one text or image, and one step of beam search. `--list` prints the files.

    python tools/files_entered.py [--list] [RECIPE ...]
"""

import argparse
import inspect
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

LATIN = "{{type: synthetic, name: latin, split: {split}, num_examples: {num_examples}}}"
DATA = [
    f"data.train={LATIN.format(split='train', num_examples=1500)}",
    f"data.dev={LATIN.format(split='dev', num_examples=20)}",
]
SUBWORDS = "tokenizers={type: shared, tokenizer: {type: subword, vocab_size: 400}}"
CAPTIONING = "show-attend-tell-2015-soft-small"
RECIPES = {
    "bahdanau-2015-small": DATA,
    "transformer-2017-small": [*DATA, SUBWORDS],
    CAPTIONING: ["data.train.num_examples=60", "data.dev.num_examples=4"],
}
SMALL = ["training.max_steps=2", "training.validate_every=2", "training.batching.max_tokens=256"]
TEXTS = ["puella rosam amat", "nauta in silva ambulat", "dominus servum videt"]
TITLES = {
    "first_update": "heedful train, up to the end of the first optimizer step",
    "update": "one further optimizer step",
    "prediction": "heedful translate or caption, of one text or image",
    "beam_step": "one step of beam search",
}
BEAM_STEP = 3  # the step of the search that is counted: earlier ones may build caches


class Tracer:
    """A profile function that collects the files entered on each path."""

    def __init__(self, package: Path) -> None:
        self.package = f"{package}/"
        self.files: dict[str, set[str]] = {path: set() for path in TITLES}
        self.path: str | None = None
        self.import_depth = 0
        self.num_train_steps = 0
        self.search_frame: FrameType | None = None
        self.num_model_steps = 0

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event not in {"call", "return"} or not code.co_filename.startswith(self.package):
            return
        if code.co_name == "<module>":
            self.import_depth += 1 if event == "call" else -1
        elif self.import_depth == 0 and code.co_flags & inspect.CO_OPTIMIZED:
            if event == "call":
                self.enter(frame, code)
            else:
                self.leave(code)

    def enter(self, frame: FrameType, code: CodeType) -> None:
        """Switch to the path that begins with this call, and add the file to the current one."""
        if self.path == "prediction":  # a search is part of it
            pass
        elif code.co_qualname == "Trainer.start_step":
            self.num_train_steps += 1
            self.path = "first_update" if self.num_train_steps == 1 else "update"
        elif code.co_qualname == "search_steps":
            if frame is not self.search_frame:  # not the next step of a generator
                self.search_frame, self.num_model_steps = frame, 0
        elif code.co_name == "step" and frame.f_back is self.search_frame is not None:
            self.num_model_steps += 1
            self.path = "beam_step" if self.num_model_steps == BEAM_STEP else None
        if self.path:
            self.files[self.path].add(code.co_filename.removeprefix(self.package))

    def leave(self, code: CodeType) -> None:
        """End the path that ends with this return."""
        is_end = code.co_qualname in {"Trainer.start_step", "search_steps"}
        if is_end and self.path != "prediction":
            self.path = None


def trace(package: Path, recipe: str) -> dict[str, list[str]]:
    """Train two steps and predict with the commands, then search with a beam of four."""
    import heedful
    from heedful.recipes import load_recipe

    tracer = Tracer(package)
    with tempfile.TemporaryDirectory() as folder:
        run, inputs = Path(folder) / "run", Path(folder) / "input.png"
        settings = [word for setting in [*RECIPES[recipe], *SMALL] for word in ("--set", setting)]
        run_command(tracer, "first_update", ["train", recipe, "--run", str(run), *settings])
        if recipe == CAPTIONING:
            from PIL import Image

            (image,) = load_recipe(recipe).data.test.open_images().read([0])
            Image.fromarray(image).save(inputs)
            run_command(tracer, "prediction", ["caption", str(run), str(inputs)])
            return {"prediction": sorted(tracer.files["prediction"])}
        inputs.write_text(f"{TEXTS[0]}\n", encoding="utf-8")
        run_command(tracer, "prediction", ["translate", str(run), str(inputs)])
        model = heedful.load(run, device="cpu")
        sys.setprofile(tracer)
        model.translate(TEXTS, beam_size=4)
        sys.setprofile(None)
    assert all(tracer.files.values()), "a path was not reached: was a traced function renamed?"
    return {path: sorted(files) for path, files in tracer.files.items()}


def run_command(tracer: Tracer, path: str, words: list[str]) -> None:
    """Run a command of heedful on a path."""
    from heedful.cli.main import main

    sys.argv = ["heedful", *words, "--device", "cpu"]
    tracer.path = path
    sys.setprofile(tracer)
    try:
        main()
    except SystemExit as stop:
        if stop.code:
            raise
    finally:
        sys.setprofile(None)
        tracer.path = None


def count(recipe: str) -> dict[str, list[str]]:
    """Return the files entered on each path, traced in a process of its own."""
    command = [sys.executable, __file__, "--json", recipe]
    child = subprocess.run(command, capture_output=True, text=True, check=False)
    if child.returncode:
        sys.exit(f"{recipe} could not be traced:\n{child.stderr}")
    return json.loads(child.stdout.splitlines()[-1])


def main() -> None:
    """Print the counts of each recipe."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipes", nargs="*", default=list(RECIPES), metavar="RECIPE")
    parser.add_argument("--list", action="store_true", help="print the files, too")
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)  # for the child
    arguments = parser.parse_args()
    package = Path(__file__).resolve().parents[1] / "src" / "heedful"
    if arguments.json:
        print(f"\n{json.dumps(trace(package, arguments.recipes[0]))}")
        return
    for recipe in arguments.recipes:
        paths = count(recipe)
        for path, files in paths.items():
            print(f"{recipe}: {TITLES[path]}: {len(files)} files")
            if arguments.list:
                print(*(f"    {file}" for file in files), sep="\n")


if __name__ == "__main__":
    main()
