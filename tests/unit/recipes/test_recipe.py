"""Recipes: loading, and the checks of their tasks."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.recipes import Recipe, load_recipe, recipe_names
from heedful.recipes.recipe import recipe_groups

TEXT = {"type": "text", "path": "book.txt"}
PAIRS = {"type": "synthetic", "name": "latin", "num_examples": 9}
SHARED = {"type": "shared", "tokenizer": {"type": "character"}}


def test_overridden_type_has_own_defaults():
    recipe = load_recipe("default", ["model.decoder.attention.score.type=bilinear"])
    assert recipe.model.decoder.attention.score.model_dump() == {"type": "bilinear"}
    assert recipe.model.decoder.hidden_size == 256


def test_overrides_reach_any_depth():
    recipe = load_recipe(
        "reverse-tiny", ["training.batching.max_tokens=99", "tokenizers.source.type=character"]
    )
    assert recipe.training.batching.max_tokens == 99
    assert recipe.tokenizers.source.type == "character"


def test_groups_contain_every_recipe_once():
    names = [
        f"{name}{variant}"
        for name, variants in recipe_groups()
        for variant in ("", *(f"-{variant}" for variant in variants))
    ]
    assert sorted(names) == recipe_names()


def test_groups_without_variants_come_first():
    has_variants = [bool(variants) for _, variants in recipe_groups()]
    assert has_variants == sorted(has_variants)
    assert ("default", ("gpu",)) in recipe_groups()
    assert ("default-classifier", ()) in recipe_groups()  # of another task
    assert ("latin-demo", ()) in recipe_groups()


def build(**settings):
    return validate_settings(Recipe, settings, location="here")


def message(**settings):
    with pytest.raises(ConfigError) as caught:
        build(**settings)
    return str(caught.value)


@pytest.mark.parametrize("kind", ["language-model", "masked-language-model"])
def test_language_models_take_running_text(kind):
    recipe = build(model={"type": kind}, tokenizers=SHARED, data={"train": TEXT})
    assert recipe.task.data.example_format.name == "lines"
    assert recipe.data.train.path == "book.txt"
    several = {"type": "text", "path": ["a", "b"]}
    recipe = build(model={"type": kind}, tokenizers=SHARED, data={"train": several})
    assert recipe.data.train.path == ["a", "b"]


@pytest.mark.parametrize("kind", ["encoder-decoder", "prefix-lm"])
def test_translation_models_take_pairs(kind):
    assert build(model={"type": kind}, data={"train": PAIRS}).task.name == "translation"


@pytest.mark.parametrize(
    ("split", "hint"),
    [
        ("train", "give --text FILE; or leave out the recipe, and one for this data is chosen"),
        ("dev", "give --dev-text FILE"),
        ("test", "give --text FILE"),
    ],
)
def test_language_model_rejects_pairs(split, hint):
    text = message(model={"type": "language-model"}, tokenizers=SHARED, data={split: PAIRS})
    assert text == (
        f"data.{split}.type: the model (type: language-model) learns from running text, "
        "not from 'synthetic'\n"
        f"  {hint}"
    )


@pytest.mark.parametrize("source", [TEXT, {"type": "conll", "path": "train.conllu"}])
def test_translation_model_rejects_data_of_other_tasks(source):
    assert message(data={"train": source}) == (
        "data.train.type: the model (type: encoder-decoder) learns from pairs of texts, "
        f"not from '{source['type']}'\n"
        "  give --source FILE --target FILE; or leave out the recipe, and one for this data is "
        "chosen"
    )


def test_corpora_of_a_mixture_are_of_the_same_task():
    corpora = [{"source": PAIRS}, {"source": {"type": "conll", "path": "train.conllu"}}]
    assert message(data={"train": {"type": "mixture", "corpora": corpora}}) == (
        "data.train.corpora.1.source.type: the model (type: encoder-decoder) learns from pairs of "
        "texts, not from 'conll'\n"
        "  give --source FILE --target FILE; or leave out the recipe, and one for this data is "
        "chosen"
    )


def test_language_model_needs_a_shared_tokenizer():
    assert message(model={"type": "language-model"}) == (
        "tokenizers.type: a language-model has one tokenizer, but this is 'separate'\n"
        "  set `tokenizers: {type: shared, tokenizer: {type: character}}`, or another tokenizer"
    )


def test_masked_language_model_rejects_scheduled_sampling():
    text = message(
        model={"type": "masked-language-model"},
        tokenizers=SHARED,
        training={"scheduled_sampling": {"type": "linear"}},
    )
    assert text == (
        "training.scheduled_sampling.type: a masked-language-model predicts no token from its "
        "own outputs, so 'linear' has no effect\n"
        "  remove training.scheduled_sampling"
    )


def test_unknown_metric_raises_with_those_of_the_task():
    settings = {"model": {"type": "language-model"}, "tokenizers": SHARED}
    assert message(**settings, training={"metric_for_best_model": "bleu"}) == (
        "training.metric_for_best_model: the model (type: language-model) has no metric called "
        "'bleu'\n"
        "  choose from: accuracy, loss"
    )
    assert message(training={"metric_for_best_model": "blue"}).startswith(
        "training.metric_for_best_model: the model (type: encoder-decoder) has no metric called "
        "'blue'; did you mean 'bleu'?\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        "training.seed",
        "training.gradient_accumulation_steps",
        "training.max_steps",
        "data.max_in_memory_examples",
        "decoding.beam_size",
        "decoding.n_best",
        "decoding.max_length",
        "decoding.max_length_ratio",
        "decoding.max_length_offset",
        "decoding.length_penalty.alpha",
        "model.encoder.embedding_size",
    ],
)
@pytest.mark.parametrize("value", ["-1", "1e308", "99999999999999999999", f"0x{'f' * 9999}"])
def test_numbers_out_of_range_are_an_error(name, value):
    with pytest.raises(ConfigError) as caught:
        load_recipe("reverse-tiny", [f"{name}={value}"])
    assert name in str(caught.value)
    assert len(str(caught.value)) < 1920  # 24 lines of 80 columns


def test_beam_sizes_have_a_limit_in_python():
    with pytest.raises(ConfigError, match=r"decoding\.beam_size: 1000000 is over 10000"):
        load_recipe("reverse-tiny").decoding.with_beam_size(beam_size=1_000_000)


def write_files(folder, **texts):
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text)
    return str(folder / f"{next(iter(texts))}.yaml")


def load_error(path):
    with pytest.raises(ConfigError) as caught:
        load_recipe(path)
    return str(caught.value)


def test_extending_file_changes_only_what_it_names(tmp_path):
    text = "extends: default\ninfo: {name: default}\ntraining: {batching: {max_tokens: 99}}\n"
    path = write_files(tmp_path, mine=text)
    assert load_recipe(path) == load_recipe("default", ["training.batching.max_tokens=99"])


def test_extended_file_is_relative_to_the_extending_one(monkeypatch, tmp_path):
    (tmp_path / "bases").mkdir()
    write_files(
        tmp_path / "bases", base="extends: other.yaml\ntraining: {max_steps: 7, patience: 3}"
    )
    write_files(tmp_path / "bases", other="extends: reverse-tiny\ntraining: {seed: 5, patience: 2}")
    path = write_files(tmp_path, mine="extends: bases/base.yaml\ntraining: {max_steps: 8}")
    monkeypatch.chdir("/")
    training = load_recipe(path).training
    assert (training.seed, training.patience, training.max_steps) == (5, 3, 8)
    assert load_recipe(path).model == load_recipe("reverse-tiny").model


def test_section_of_another_type_is_replaced(tmp_path):
    base = "training: {lr_scheduler: {type: linear, warmup_steps: 7}}\n"
    same = "extends: base.yaml\ntraining: {lr_scheduler: {type: linear}}\n"
    other = "extends: base.yaml\ntraining: {lr_scheduler: {type: inverse-sqrt}}\n"
    write_files(tmp_path, base=base, same=same, other=other)
    kept, replaced = (load_recipe(f"{tmp_path}/{name}.yaml") for name in ("same", "other"))
    assert kept.training.lr_scheduler.warmup_steps == 7
    alone = build(training={"lr_scheduler": {"type": "inverse-sqrt"}})
    assert replaced.training.lr_scheduler == alone.training.lr_scheduler


def test_default_type_counts_as_a_type(tmp_path):
    """A base without `type` has the default one: a model of another type replaces it."""
    base = "model: {encoder: {type: recurrent, hidden_size: 8}}\n"
    child = "extends: base.yaml\nmodel: {type: prefix-lm}\n"
    assert load_recipe(write_files(tmp_path, child=child, base=base)).model.type == "prefix-lm"
    child = "extends: base.yaml\nmodel: {type: encoder-decoder}\n"
    recipe = load_recipe(write_files(tmp_path, child=child, base=base))
    assert recipe.model.encoder.hidden_size == 8


def test_lists_replaced_and_null_resets(tmp_path):
    base = "decoding: {forbidden_phrases: [a, b], max_length: 9}\n"
    child = "extends: base.yaml\ndecoding: {forbidden_phrases: [c], max_length: null}\n"
    decoding = load_recipe(write_files(tmp_path, child=child, base=base)).decoding
    assert (decoding.forbidden_phrases, decoding.max_length) == (("c",), None)


def test_error_names_the_file_of_the_setting(tmp_path):
    base = "training: {max_stepz: 3}\ndecoding: {beam_size: two}\n"
    path = write_files(tmp_path, child="extends: base.yaml\ninfo: {summary: mine}", base=base)
    assert load_error(path).startswith(f"{tmp_path}/base.yaml: training.max_stepz: ")
    child = "extends: base.yaml\ntraining: {max_stepz: 4}"
    path = write_files(tmp_path, child=child)
    assert load_error(path).startswith(f"{tmp_path}/child.yaml: training.max_stepz: ")


def test_cycle_raises(tmp_path):
    path = write_files(tmp_path, a="extends: b.yaml", b="extends: ./a.yaml")
    chain = f"{tmp_path}/a.yaml -> {tmp_path}/b.yaml -> {tmp_path}/a.yaml"
    assert load_error(path) == (
        f"{tmp_path}/b.yaml: extends: a recipe extends itself: {chain}\n"
        "  remove `extends` from one of them"
    )


def test_long_chain_raises(tmp_path):
    files = {f"f{i}": f"extends: f{i + 1}.yaml" for i in range(12)}
    assert load_error(write_files(tmp_path, **files, f12="")) == (
        f"{tmp_path}/f10.yaml: extends: more than 10 recipes extend one another\n"
        "  write their settings into fewer files"
    )


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("defautl", "no recipe is called 'defautl'; did you mean 'default'?"),
        ("[default]", "expected a name, got ['default']"),
    ],
)
def test_unknown_base_raises(tmp_path, base, message):
    path = write_files(tmp_path, mine=f"extends: {base}")
    assert load_error(path).startswith(f"{path}: extends: {message}\n")


def test_missing_base_file_raises(tmp_path):
    path = write_files(tmp_path, mine="extends: base.yaml")
    assert load_error(path) == f"{tmp_path}/base.yaml: no such file\n  check the path"


def test_recipe_has_name(tmp_path):
    assert load_recipe("default").info.name == "default"
    assert load_recipe(write_files(tmp_path, mine="extends: default")).info.name == "mine"


def test_recipe_with_other_training_data_does_not_describe_former_data(tmp_path):
    """By overrides, as of files and `compare --data`, and by `extends`."""
    name, data = "bahdanau-2015-small", "data.train={type: parallel-files, source: a, target: b}"
    original, changed = load_recipe(name).info, load_recipe(name, [data]).info
    assert original.expected
    assert load_recipe(name, ["training.max_steps=7"]).info == original
    assert changed == original.model_copy(
        update={"summary": f"{name} with a and b", "expected": ""}
    )
    mine = "data: {train: {type: parallel-files, source: a, target: b}}"
    path = write_files(tmp_path, mine=f"extends: {name}\n{mine}")
    assert (load_recipe(path).info.summary, load_recipe(path).info.expected) == (
        *("mine with a and b", ""),
    )
    path = write_files(tmp_path, mine=f"extends: {name}\ninfo: {{summary: Mine}}\n{mine}")
    assert load_recipe(path).info.summary == "Mine"


def test_recipe_without_training_data_keeps_summary_with_any():
    data = "data.train={type: parallel-files, source: a, target: b}"
    original, changed = load_recipe("default").info, load_recipe("default", [data]).info
    assert changed == original.model_copy(update={"expected": ""})


def test_bundled_recipes_describe_themselves():
    for name in recipe_names():
        info = load_recipe(name).info
        assert all([info.summary, info.expected])
        assert not info.summary.startswith(f"{name} with")


@pytest.mark.parametrize(
    ("override", "path", "option"),
    [
        ("max_minutes=3", "training.max_minutes", ", or --minutes 3"),
        ("max_minuts=3", "training.max_minutes", ", or --minutes 3"),
        ("beam=3", "decoding.beam_size", ""),
        ("training.learning_rate=0.1", "training.optimizer.learning_rate", ", or --lr 0.1"),
        ("optimizer.learning_rate=0.1", "training.optimizer.learning_rate", ", or --lr 0.1"),
        ("metric_for_best_model=bleu", "training.metric_for_best_model", ", or --metric bleu"),
    ],
)
def test_setting_of_another_section_suggests_the_path(override, path, option):
    with pytest.raises(ConfigError) as caught:
        load_recipe("default", [override])
    assert f"; did you mean {path!r}" in caught.value.message
    value = override.split("=")[1]
    assert caught.value.hint == f"write --set {path}={value}{option}"


def test_misplaced_key_of_a_file_suggests_the_section(tmp_path):
    assert load_error(write_files(tmp_path, mine="max_minutes: 3")) == (
        f"{tmp_path}/mine.yaml: max_minutes: no setting is called 'max_minutes'; "
        "did you mean 'training.max_minutes'?\n  move it into the section 'training'"
    )


def test_key_of_a_file_with_part_of_a_name_suggests_the_name(tmp_path):
    text = load_error(write_files(tmp_path, mine="decoding: {beam: 3}"))
    assert text.endswith("did you mean 'decoding.beam_size'?\n  rename it to 'beam_size'")


@pytest.mark.parametrize("name", ["bahdanau", "luong", "nothing-like-it", "trasformer-2017"])
def test_unknown_recipe_suggests_similar_names(name):
    text = load_error(name)
    named = [other for other in recipe_names() if f" {other}" in text]
    assert len(named) <= 7
    assert all(name[:5] in other or name == "trasformer-2017" for other in named)
    assert "`heedful recipes` lists all" in text


@pytest.mark.parametrize("section", ["training", "decoding"])
def test_unknown_setting_suggests_similar_names(section):
    with pytest.raises(ConfigError) as caught:
        load_recipe("default", [f"{section}.max_lenght=3"])
    assert caught.value.hint.count(",") < 7
    assert caught.value.hint.endswith(
        "`heedful recipes --schema` lists every setting and its values"
    )


def test_misplaced_section_suggests_the_top_level(tmp_path):
    text = load_error(write_files(tmp_path, mine="training: {decoding: {beam_size: 3}}"))
    assert text.endswith("did you mean 'decoding'?\n  move it to the top level")
