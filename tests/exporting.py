"""Runs for the tests of exports: trained in seconds, or of a recipe with random parameters."""

import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import yaml

import heedful
from heedful.recipes import load_recipe
from heedful.runs import Run
from heedful.storage.state_dict import unique_weights
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.tokenizer import CharacterTokenizerConfig
from heedful.tokenization.tokenizer_pair import SeparateTokenizersConfig, SharedTokenizerConfig
from tests.commands import write_recipe

UMASK = 0o027  # that no default has
TEXTS = ["abcdefgh ijklmnop", "qrstuvwx yz", "0123456789 +-*/()=#"]
HEADS = {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}}
TRANSFORMER = {
    "type": "transformer",
    "hidden_size": 32,
    "num_layers": 2,
    "attention": HEADS,
    "feed_forward": [{"intermediate_size": 64}],
}
SUBWORDS = {"type": "shared", "tokenizer": {"type": "subword", "vocab_size": 276}}
WORDS = {"type": "separate", "source": {"type": "whitespace"}, "target": {"type": "whitespace"}}


def train_letters(folder: Path, *, is_transformer: bool) -> Path:
    """Train a model that copies letters, for 150 steps; a GRU if it is no Transformer."""
    recipe = write_recipe(folder, steps=150, every=75)
    settings = yaml.safe_load(recipe.read_text())
    settings["tokenizers"] = SUBWORDS if is_transformer else WORDS
    if is_transformer:
        settings["model"] = {"encoder": TRANSFORMER, "decoder": TRANSFORMER}
    recipe.write_text(yaml.safe_dump(settings))
    with (folder / "target.txt").open("a") as targets, (folder / "source.txt").open("a") as sources:
        print("a b z", file=targets)  # a word that sources do not have
        print("a b", file=sources)
    heedful.train(str(recipe), folder / "run")
    return folder / "run"


def export(run: Path, target: str, out: Path, *options: str) -> str:
    """Export by the command, in a process without shape checks, which torch.export cannot read.

    The files have the modes that the umask gives; a model must be readable by a group.
    """
    command = [
        sys.executable,
        "-m",
        "heedful",
        "export",
        run,
        "--to",
        target,
        "--out",
        out,
        *options,
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, umask=UMASK)
    assert done.returncode == 0, done.stderr
    assert_modes(out)
    return done.stdout.strip()


def assert_modes(folder: Path) -> None:
    """Assert that a folder and all in it have the modes that `UMASK` gives."""
    paths = [folder, *folder.rglob("*")]
    assert len(paths) > 1
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in paths}
    assert modes == {path.name: 0o750 if path.is_dir() else 0o640 for path in paths}


def write_recipe_run(
    name: str,
    folder: Path,
    *,
    larger: str = "source",
    settings: Sequence[str] = (),
    scale: float = 1.0,
) -> Path:
    """Write the run of a recipe with random parameters; subwords and SMILES become characters.

    Of separate vocabularies, the `larger` one has more tokens. Outputs depend more on their
    sources if matrices are multiplied by a `scale`, but for those from one state to the next: with
    larger ones an LSTM is chaotic, and float32 and float64 give other outputs.
    """
    torch.manual_seed(0)
    recipe = load_recipe(name, settings)
    if recipe.tokenizers.source_config.type in ("subword", "smiles"):
        one, is_shared = CharacterTokenizerConfig(), _shares_a_vocabulary(recipe)
        shared, separate = SharedTokenizerConfig, SeparateTokenizersConfig
        tokenizers = shared(tokenizer=one) if is_shared else separate(source=one, target=one)
        recipe = recipe.model_copy(update={"tokenizers": tokenizers})
    few = [text[:-4] for text in TEXTS]
    pair = recipe.tokenizers.train(*((TEXTS, few) if larger == "source" else (few, TEXTS)))
    run = Run(folder)
    run.folder.mkdir(parents=True)
    run.initialize(recipe, pair)
    model = recipe.task.build_model(recipe, VocabSizes.from_tokenizers(pair))
    weights = unique_weights(model)
    for name, weight in weights.items():
        is_loop = any(part in name for part in ("weight_hh", "hidden_to", "wiring"))
        if weight.dim() > 1 and weight.is_floating_point() and not is_loop:
            weights[name] = weight * scale
    run.save_model(weights, step=0)
    return run.folder


def _shares_a_vocabulary(recipe) -> bool:
    has_shared_table = getattr(recipe.model, "embeddings", "") == "shared"
    is_open = getattr(recipe.tokenizers.source_config, "open_vocabulary", False)
    return has_shared_table or is_open or recipe.model.type != "encoder-decoder"
