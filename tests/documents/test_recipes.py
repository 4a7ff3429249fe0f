"""Every bundled recipe loads, builds and says what to expect of it."""

import re
from itertools import pairwise

import numpy as np
import pytest
import torch

import heedful
from heedful.config import read_yaml, to_commented_yaml, to_yaml, validate_settings
from heedful.recipes import load_recipe, recipe_names
from heedful.recipes.recipe import read_recipe_text
from tests.documents.commands import shell_lines
from tests.documents.markdown import ROOT
from tests.documents.parameter_counts import MILLION, num_parameters

FILES = sorted((ROOT / "src" / "heedful" / "recipes").glob("*.yaml"))
RECIPES = {name: load_recipe(name) for name in recipe_names()}
# Each scaled-down recipe and the recipe with the sizes of the paper.
PAPER_OF = {
    name: name.removesuffix("-small")
    for name, recipe in RECIPES.items()
    if name.endswith("-small") and getattr(recipe.data.train, "type", "").startswith("synthetic")
} | {
    "transformer-2017-tiny": "transformer-2017-base",
    "gpt-tiny": "gpt-2018",
    "bert-small": "bert-2018",
}
SMALL = sorted(PAPER_OF)
PAPERS = sorted(PAPER_OF.values())
CAPTIONERS = [name for name, recipe in RECIPES.items() if recipe.task.name == "captioning"]
SMALL_CAPTIONERS = [
    name
    for name in CAPTIONERS
    if name.startswith(("show-", "caption-", "adaptive-")) and name.endswith("-small")
]
FLICKR8K = [name for name in CAPTIONERS if name.endswith("-flickr8k")]
# Recipes for one mechanism: the setting that makes the difference, and its value.
MECHANISMS = {
    "graves-2014-cosine": ("model.decoder.attention.score.type", "cosine"),
    "peters-2019-entmax": ("model.decoder.attention.alignment.type", "entmax"),
    "see-2017-coverage": ("model.decoder.attention.auxiliary_losses.0.type", "coverage"),
    "pointer-generator-2017": ("model.decoder.output_head.type", "pointer-generator"),
    "copynet-2016": ("model.decoder.output_head.type", "copynet"),
    "copy-transformer": ("model.decoder.output_head.type", "pointer-generator"),
    "pointer-network-2015": ("model.decoder.output_head.type", "pointer"),
    "wu-2018-hard": ("model.decoder.output_head.type", "marginal"),
    "xu-2015-hard": ("model.decoder.attention.alignment.type", "sampled"),
    "raffel-2017-monotonic": ("model.decoder.attention.alignment.type", "monotonic"),
    "chiu-2018-mocha": ("model.decoder.attention.alignment.type", "monotonic-chunkwise"),
    "deepatt-2016": ("model.encoder.num_columns", 2),
    "bengio-2015-sampling": ("training.scheduled_sampling.type", "inverse-sigmoid"),
    "lower-attention-rnn": ("model.decoder.lower_attention.score.type", "additive"),
}
some_files = pytest.mark.parametrize(  # the others by `make test-wide`
    "file",
    [
        pytest.param(file, id=file.stem, marks=() if index % 6 == 0 else pytest.mark.wide)
        for index, file in enumerate(FILES)
    ],
)


def test_recipe_names_are_file_names():
    assert FILES
    assert recipe_names() == sorted(file.stem for file in FILES)


@some_files
def test_recipe_loads_equally_by_name_and_by_path(file):
    assert load_recipe(file.stem) == load_recipe(str(file))


@some_files
def test_resolved_recipe_round_trips_through_yaml(file):
    recipe = load_recipe(file.stem)
    for text in (to_yaml(recipe), to_commented_yaml(recipe)):
        settings = read_yaml(text, location="written")
        assert validate_settings(type(recipe), settings, location="written") == recipe


def test_recipes_have_summary_paper_and_expected_score():
    for name, recipe in RECIPES.items():
        assert recipe.info.summary.endswith("."), name
        assert re.search(r"\b(19|20)\d\d\b", recipe.info.paper), name
        assert recipe.info.expected, name


def test_recipes_set_no_dropout_without_effect():
    for name, recipe in RECIPES.items():
        settings = recipe.model_dump()
        model, backbone = settings["model"], settings["model"].get("backbone") or {}
        if recipe.training.objective.type != "cross-entropy":  # outputs are scored without it
            parts = (model.get("encoder") or {}, model.get("decoder") or {})
            assert [part.get("dropout", 0) for part in parts] == [0, 0], name
        if backbone.get("type") == "recurrent" and backbone["num_layers"] == 1:  # between layers
            assert backbone["dropout"] == 0, name


def test_recipe_lines_fit_in_100_columns():
    lines = [line for name in RECIPES for line in read_recipe_text(name).splitlines()]
    assert [line for line in lines if len(line) > 100] == []


def test_recurrent_systems_have_both_sizes():
    luong = ["concat", "dot", "general", "local-m", "local-p", "location"]
    systems = {
        "seq2seq-2014",
        "rnn-encdec-2014",
        "lm-seq2seq",
        "bahdanau-2015",
        *(f"luong-2015-{score}" for score in luong),
        "multihead-rnn",
        "gnmt-2016",
        "gnmt-2016-rl",
        "lstmn-2016-shallow",
        "lstmn-2016-deep",
        "selfattentive-rnn",
        "moe-2017",
        *MECHANISMS,
    }
    assert set(recipe_names()) >= systems | {f"{name}-small" for name in systems}


@pytest.mark.parametrize("suffix", ["", "-small"])
@pytest.mark.parametrize("name", MECHANISMS)
def test_recipe_of_a_mechanism_selects_it(name, suffix):
    path, expected = MECHANISMS[name]
    settings = load_recipe(name + suffix).model_dump()
    for key in path.split("."):
        settings = settings[int(key) if key.isdigit() else key]
    assert settings == expected


@pytest.mark.wide
@pytest.mark.parametrize("name", MECHANISMS)
def test_small_recipe_of_a_mechanism_trains_and_decodes(name, tmp_path):
    sizes = ["data.train.num_examples=60", "data.dev.num_examples=5", "training.max_steps=2"]
    heedful.train(f"{name}-small", tmp_path / "run", settings=[*sizes, "training.save_every=1"])
    (output,) = heedful.load(tmp_path / "run").translate(["a b c"])
    assert np.isfinite(output.weights).all()


def test_systems_without_recurrence_have_both_sizes():
    systems = ["transformer-decoder-2018", "dmca-2018", "dmca-moe-2018", "moe-transformer"]
    systems += ["convs2s-2017", "bytenet-2016"]
    assert set(recipe_names()) >= {
        *(f"transformer-2017-{size}" for size in ("tiny", "small", "base", "big")),
        *systems,
        *(f"{name}-small" for name in systems),
        *("gpt-2018", "gpt-small", "gpt-tiny", "bert-2018", "bert-small"),
    }


@pytest.mark.parametrize("name", FLICKR8K)
def test_recipe_for_flickr8k_uses_the_official_splits(name):
    data = load_recipe(name).data
    for split in ("train", "dev", "test"):
        source = getattr(data, split)
        assert source.split == split
        assert source.features == f"flickr8k/features_{split}.npy"


def test_systems_of_captioning_have_three_sizes():
    systems = ["show-and-tell-2015", "show-attend-tell-2015-soft", "show-attend-tell-2015-hard"]
    systems += ["caption-transformer", "adaptive-attention-2017"]
    expected = {f"{name}{suffix}" for name in systems for suffix in ("", "-small", "-flickr8k")}
    assert set(CAPTIONERS) >= expected
    assert {f"{name}-small" for name in systems} == set(SMALL_CAPTIONERS)


def test_paper_recipes_need_files_and_quote_the_paper():
    for name in PAPERS:
        assert RECIPES[name].data.train is None, name
        assert RECIPES[name].info.expected.endswith("not run by us"), name


def test_small_recipes_have_data_and_a_measured_score():
    for name in SMALL:
        data, expected = RECIPES[name].data, RECIPES[name].info.expected
        assert data.train.name in {"latin", "reverse", "copy", "sort", "argsort"}, name
        assert data.test.name == data.train.name
        assert f"after {RECIPES[name].training.max_steps:,} steps" in expected, name
        assert re.match(r"[\d.]+ (% of|nats per character on) .*500 unseen ", expected), name


def test_small_recipes_of_captioning_describe_built_in_shapes():
    for name in SMALL_CAPTIONERS:
        data, expected = RECIPES[name].data, RECIPES[name].info.expected
        assert data.train.name == data.test.name == "shapes"
        steps = f"after {RECIPES[name].training.max_steps:,} steps"
        assert re.match(rf"[\d.]+ % of 500 unseen captions exactly right {steps}", expected), name


def test_recipes_page_has_the_same_scores():
    page = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")
    for name in [*SMALL, *SMALL_CAPTIONERS]:
        paper = PAPER_OF.get(name, name.removesuffix("-small"))
        (row,) = re.findall(rf"^\| `{paper}` \|.*", page, re.MULTILINE)
        expected = RECIPES[name].info.expected
        match = re.match(r"([\d.]+ (?:%|nats)).*, (.*) on one core$", expected)
        assert match, name
        assert {match[1], match[2]} <= {cell.strip() for cell in row.split("|")}, name


def test_recipes_page_overrides_existing_settings():
    lines = shell_lines((ROOT / "docs" / "recipes.md").read_text(encoding="utf-8"))
    (line,) = [line for line in lines if "--set" in line]
    words = line.split()
    settings = [word for previous, word in pairwise(words) if previous == "--set"]
    recipe = load_recipe(words[2], settings)
    assert recipe.model.encoder.hidden_size == recipe.model.decoder.hidden_size == 512
    assert recipe.training.lr_scheduler.type == "cosine"


# Without biases, from the matrices in the papers: embeddings, layers, output.
BAHDANAU = (
    2 * 30_000 * 620  # E of both sides
    + 2 * 3 * (620 + 1000) * 1000  # bidirectional GRU
    + 3 * (620 + 1000 + 2000) * 1000  # W, U and C of the decoder
    + (1000 + 2000 + 1) * 1000  # W_a, U_a and v_a
    + 1000 * 1000  # W_s
    + 2 * 500 * (1000 + 620 + 2000)  # U_o, V_o and C_o
    + 500 * 30_000  # W_o
)
LUONG = (
    3 * 50_000 * 1000  # embeddings of both sides, and W_s
    + 4 * 4 * 2000 * 1000  # the encoder
    + 4 * (3000 + 3 * 2000) * 1000  # the decoder, with input feeding
    + 2000 * 1000  # W_c
)
CONVS2S_SIDE = (
    40_000 * 512  # embeddings
    + 512 * 512  # to the first layer
    + 10 * 3 * 512 * 2 * 512  # ten layers of width 3, with gates
    + 3 * (512 + 2 * 768) * 2 * 768  # three of 768
    + (768 + 2048) * 2 * 2048  # two of 2048 and width 1
    + 512 * 768
    + 768 * 2048  # residual connections between sizes
    + 2048 * 512  # to the output
)
CONVS2S = (
    2 * CONVS2S_SIDE
    + 2 * 512 * (10 * 512 + 3 * 768 + 2 * 2048)  # W_d and its inverse in every decoder layer
    + 512 * 40_000
)
COUNTED = {  # what papers print is in parameter_counts.py
    "bahdanau-2015": BAHDANAU,
    "luong-2015-dot": LUONG,
    "luong-2015-general": LUONG + MILLION,
    "luong-2015-concat": LUONG + 2001 * 1000,
    "luong-2015-location": LUONG + 50 * 1000,
    "luong-2015-local-m": LUONG + MILLION,
    "luong-2015-local-p": LUONG + MILLION + 1001 * 1000,
    "convs2s-2017": CONVS2S,
}


@pytest.mark.parametrize("name", COUNTED)
def test_paper_recipe_has_the_papers_parameter_count(name):
    assert num_parameters(name) == pytest.approx(COUNTED[name], rel=0.01)


def test_gnmt_searches_as_in_section_7():
    decoding = load_recipe("gnmt-2016").decoding
    assert 8 <= decoding.beam_size <= 12
    assert decoding.pruning.build() == (3.0, 3.0)  # "beamsize = 3.0"
    assert decoding.length_penalty.alpha == decoding.coverage_penalty.beta == 0.2


def test_convs2s_is_the_model_of_section_5_1():
    recipe = load_recipe("convs2s-2017")
    for side in (recipe.model.encoder, recipe.model.decoder):
        sizes = [(group.num_layers, group.hidden_size, group.kernel_size) for group in side.layers]
        assert sizes == [(10, 512, 3), (3, 768, 3), (2, 2048, 1)]
        assert side.embedding_size == 512
    assert recipe.training.batching.max_tokens == 48 * (30 + 30)
    assert recipe.decoding.length_penalty.build()(-6.0, 4) == -6.0 / 4  # log P / n^alpha


@pytest.mark.wide
@pytest.mark.parametrize("name", SMALL)
def test_small_recipe_has_the_papers_components_and_fewer_parameters(name):
    small, large = load_recipe(name).model, load_recipe(PAPER_OF[name]).model
    assert component_types(small.model_dump()) == component_types(large.model_dump())
    with torch.device("meta"):
        models = [
            item.build(source_vocab_size=100, target_vocab_size=100) for item in (small, large)
        ]
    count, count_of_paper = (sum(p.numel() for p in model.parameters()) for model in models)
    assert count < min(2 * MILLION, count_of_paper)


# Initialization, positional encoding and connections may depend on the size.
SIZE_DEPENDENT = {"init", "positional_encoding", "connection"}


def component_types(settings, path="") -> set[tuple[str, str]]:
    """Return the `type` of every section with its path."""
    if isinstance(settings, list | tuple):
        return set().union(*(component_types(item, path) for item in settings))
    if not isinstance(settings, dict):
        return set()
    inner = [
        component_types(value, f"{path}.{name}")
        for name, value in settings.items()
        if name not in SIZE_DEPENDENT
    ]
    this = {(path, settings["type"])} if "type" in settings else set()
    return this.union(*inner)
