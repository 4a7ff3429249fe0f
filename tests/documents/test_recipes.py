"""Recipes: every file that comes with heedful can be used."""

import re
from itertools import pairwise

import pytest
import torch

from heedful.config import read_yaml, to_yaml, validate_settings
from heedful.recipes import load_recipe, recipe_names
from heedful.recipes.recipe import read_recipe_text
from tests.documents.commands import shell_lines
from tests.documents.markdown import ROOT

FILES = sorted((ROOT / "src" / "heedful" / "recipes").glob("*.yaml"))
# A size that learns a built-in corpus in minutes, and the system at its paper's size.
PAPER_OF = {
    name: name.removesuffix("-small")
    for name in recipe_names()
    if name.endswith("-small") and load_recipe(name).data.train is not None
} | {
    "transformer-2017-tiny": "transformer-2017-base",
    "gpt-tiny": "gpt-2018",
    "bert-small": "bert-2018",
}
SMALL = sorted(PAPER_OF)
PAPERS = sorted(PAPER_OF.values())
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)


def test_every_file_is_a_recipe_with_a_name():
    assert FILES
    assert recipe_names() == sorted(file.stem for file in FILES)


@each_file
def test_a_recipe_loads_the_same_by_name_and_by_file(file):
    assert load_recipe(file.stem) == load_recipe(str(file))


@each_file
def test_a_recipe_written_out_whole_is_the_same_recipe(file):
    recipe = load_recipe(file.stem)
    settings = read_yaml(to_yaml(recipe), location="written")
    assert validate_settings(type(recipe), settings, location="written") == recipe


@each_file
def test_a_recipe_says_what_it_is_for(file):
    about = load_recipe(file.stem).info
    assert about.summary.endswith(".")
    assert re.search(r"\b(19|20)\d\d\b", about.paper)
    assert about.expected


@each_file
def test_a_recipe_is_read_without_scrolling_aside(file):
    assert [line for line in read_recipe_text(file.stem).splitlines() if len(line) > 100] == []


def test_there_are_the_recurrent_systems_in_both_sizes():
    luong = ["concat", "dot", "general", "local-m", "local-p", "location"]
    systems = {
        "seq2seq-2014",
        "rnn-encdec-2014",
        "lm-seq2seq",
        "bahdanau-2015",
        *(f"luong-2015-{kind}" for kind in luong),
        "multihead-rnn",
        "gnmt-2016",
        "deepatt-2016",
        "lstmn-2016-shallow",
        "lstmn-2016-deep",
        "selfattentive-rnn",
        "moe-2017",
    }
    assert set(recipe_names()) >= systems | {f"{name}-small" for name in systems}


def test_there_are_the_systems_without_recurrence_in_both_sizes():
    systems = ["transformer-decoder-2018", "dmca-2018", "dmca-moe-2018", "moe-transformer"]
    systems += ["convs2s-2017", "bytenet-2016"]
    assert set(recipe_names()) >= {
        *(f"transformer-2017-{size}" for size in ("tiny", "small", "base", "big")),
        *systems,
        *(f"{name}-small" for name in systems),
        *("gpt-2018", "gpt-small", "gpt-tiny", "bert-2018", "bert-small"),
    }


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_of_a_paper_wants_files_and_says_that_its_score_is_the_papers(name):
    recipe = load_recipe(name)
    assert recipe.data.train is None
    assert recipe.info.expected.endswith("not run by us")


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_brings_its_data_and_says_what_was_measured(name):
    recipe = load_recipe(name)
    assert recipe.data.train.name in {"latin", "reverse", "sort"}
    assert recipe.data.test.name == recipe.data.train.name
    steps = f"after {recipe.training.max_steps:,} steps"
    assert steps in recipe.info.expected
    assert re.match(r"[\d.]+ (% of|nats per character on) .*500 unseen ", recipe.info.expected)


@pytest.mark.parametrize("name", SMALL)
def test_the_page_on_recipes_tells_the_same_score(name):
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    (row,) = re.findall(rf"^\| `{PAPER_OF[name]}` \|.*", page, re.MULTILINE)
    about = load_recipe(name).info
    told = re.match(r"([\d.]+ (?:%|nats)).*, (.*) on one core$", about.expected)
    assert told
    cells = [cell.strip() for cell in row.split("|")]
    assert {told[1], told[2]} <= set(cells)


def test_the_page_on_recipes_changes_settings_that_there_are():
    lines = shell_lines((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"))
    (line,) = [line for line in lines if "--set" in line]
    words = line.split()
    settings = [word for before, word in pairwise(words) if before == "--set"]
    recipe = load_recipe(words[2], settings)
    assert recipe.model.encoder.hidden_size == recipe.model.decoder.hidden_size == 512
    assert recipe.training.lr_scheduler.type == "cosine"


def vocabulary_sizes(text) -> tuple[int, int]:
    """How many tokens a recipe has at most on either side."""
    sides = [text.tokenizer] * 2 if text.kind == "shared" else [text.source, text.target]
    return tuple(side.size if side.kind == "subword" else side.max_vocab_size for side in sides)


def num_weights(name: str) -> int:
    """How many weights the model of a recipe has, without giving them any memory."""
    recipe = load_recipe(name)
    source_vocab_size, target_vocab_size = vocabulary_sizes(recipe.tokenizers)
    with torch.device("meta"):
        model = recipe.model.build(
            source_vocab_size=source_vocab_size, target_vocab_size=target_vocab_size
        )
    return sum(weight.numel() for weight in model.parameters())


# Without biases, from the matrices in the papers: words, then layers, then what is on top.
BAHDANAU = (
    2 * 30_000 * 620  # E of both sides
    + 2 * 3 * (620 + 1000) * 1000  # a GRU each way
    + 3 * (620 + 1000 + 2000) * 1000  # W, U and C of the decoder
    + (1000 + 2000 + 1) * 1000  # W_a, U_a and v_a
    + 1000 * 1000  # W_s
    + 2 * 500 * (1000 + 620 + 2000)  # U_o, V_o and C_o
    + 500 * 30_000  # W_o
)
LUONG = (
    3 * 50_000 * 1000  # words of both sides, and W_s
    + 4 * 4 * 2000 * 1000  # the encoder
    + 4 * (3000 + 3 * 2000) * 1000  # the decoder, whose first layer is fed what was told
    + 2000 * 1000  # W_c
)
MILLION = 1_000_000
COUNTED = {
    "seq2seq-2014": 384 * MILLION,  # as the paper says in section 3.4
    "bahdanau-2015": BAHDANAU,
    "luong-2015-dot": LUONG,
    "luong-2015-general": LUONG + MILLION,
    "luong-2015-concat": LUONG + 2001 * 1000,
    "luong-2015-location": LUONG + 50 * 1000,
    "luong-2015-local-m": LUONG + MILLION,
    "luong-2015-local-p": LUONG + MILLION + 1001 * 1000,
    "moe-2017": 2048 * 2 * 512 * 2048 + 3 * 32_000 * 512,  # all but experts and words is little
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_recipe_of_a_paper_has_as_many_weights_as_the_paper_says(name):
    assert num_weights(name) == pytest.approx(COUNTED[name], rel=0.01)


@pytest.mark.parametrize("name", SMALL)
def test_a_small_recipe_is_its_papers_system_with_fewer_weights(name):
    small, large = load_recipe(name).model, load_recipe(PAPER_OF[name]).model
    assert kinds(small.model_dump()) == kinds(large.model_dump())
    count = sum(
        weight.numel()
        for weight in small.build(source_vocab_size=100, target_vocab_size=100).parameters()
    )
    assert count < 2 * MILLION < num_weights(PAPER_OF[name])


# How a system begins, what tells places apart and what goes past its layers may suit its size.
OF_SIZE = {"init", "positions", "connection"}


def kinds(settings, place="") -> set[tuple[str, str]]:
    """The choices that make a system what it is, each with its place."""
    if isinstance(settings, list | tuple):
        return set().union(*(kinds(each, place) for each in settings))
    if not isinstance(settings, dict):
        return set()
    inner = [
        kinds(each, f"{place}.{name}") for name, each in settings.items() if name not in OF_SIZE
    ]
    own = {(place, settings["kind"])} if "kind" in settings else set()
    return own.union(*inner)
