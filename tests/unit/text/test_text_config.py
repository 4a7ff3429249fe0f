import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from heedful.config import Choice, read_yaml, resolve, write_yaml
from heedful.errors import ConfigError
from heedful.text.config import (
    CharacterConfig,
    SamplingConfig,
    SeparateTexts,
    SharedText,
    SubwordConfig,
    TextConfig,
    WordConfig,
)

SOURCES = ["puella in horto ambulat", "leo currit"]
TARGETS = ["the girl walks in the garden", "the lion runs"]
SEPARATE = SeparateTexts(source=WordConfig(), target=CharacterConfig())
SHARED = SharedText(tokenizer=SubwordConfig(size=400))


def test_separate_texts_are_learned_apart():
    source, target = SeparateTexts(source=WordConfig(), target=WordConfig()).train(SOURCES, TARGETS)
    assert " puella" in source.vocabulary
    assert " puella" not in target.vocabulary


def test_a_shared_text_is_learned_from_both_sides():
    pair = SharedText(tokenizer=WordConfig()).train(SOURCES, TARGETS)
    assert pair.source is pair.target
    assert {" puella", " girl"} <= set(pair.source.vocabulary.tokens)


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.kind)
def test_a_saved_pair_loads_and_encodes_the_same(config, tmp_path):
    pair = config.train(SOURCES, TARGETS)
    pair.save(tmp_path / "text")
    loaded = config.load(tmp_path / "text")
    assert loaded.source.encode_all(SOURCES) == pair.source.encode_all(SOURCES)
    assert loaded.target.encode_all(TARGETS) == pair.target.encode_all(TARGETS)


def test_files_lie_where_the_sides_say(tmp_path):
    SEPARATE.train(SOURCES, TARGETS).save(tmp_path / "separate")
    SHARED.train(SOURCES, TARGETS).save(tmp_path / "shared")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert files == {
        "separate/source/vocabulary.json",
        "separate/target/vocabulary.json",
        "shared/shared/subwords.model",
    }


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.kind)
def test_a_choice_reads_back_from_what_is_written(config):
    assert TypeAdapter(TextConfig).validate_python(config.model_dump(mode="json")) == config
    assert "normalisation:" in write_yaml(config)


@pytest.mark.parametrize(
    "settings",
    [
        {"kind": "word", "max_size": 4},
        {"kind": "word", "min_count": 0},
        {"kind": "subword", "size": 260},
        {"kind": "subword", "character_coverage": 0.5},
        {"kind": "subword", "model": "word"},
        {"kind": "subword", "regularisation": {"kind": "sampling", "alpha": 0}},
        {"kind": "subword", "model": "bpe", "regularisation": {"kind": "dropout", "p": 1}},
        {"kind": "bytes"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings):
    class Holder(Choice):
        text: TextConfig

    with pytest.raises(ConfigError):
        resolve(Holder, {"text": {"kind": "shared", "tokenizer": settings}}, origin="test.yaml")


@pytest.mark.parametrize(
    ("kind", "needed", "model"), [("sampling", "unigram", "bpe"), ("dropout", "bpe", "unigram")]
)
def test_regularisation_that_does_not_fit_the_model_is_refused(kind, needed, model):
    settings = {"kind": "subword", "model": model, "regularisation": {"kind": kind}}
    with pytest.raises(ConfigError) as caught:
        resolve(SharedText, {"tokenizer": settings}, origin="test.yaml")
    assert str(caught.value) == (
        f"test.yaml: tokenizer: regularisation of kind '{kind}' needs `model: {needed}`, "
        f"but the model is '{model}'\n"
        "  `heedful recipes --schema` lists every setting and what it takes"
    )


@pytest.mark.parametrize("settings", [{"kind": "sampling"}, {"kind": "dropout"}])
def test_a_regularisation_reads_back_from_what_is_written(settings):
    model = "unigram" if settings["kind"] == "sampling" else "bpe"
    tokenizer = {"kind": "subword", "model": model, "regularisation": settings}
    config = resolve(SharedText, {"tokenizer": tokenizer}, origin="test.yaml")
    assert resolve(SharedText, read_yaml(write_yaml(config), origin="x"), origin="x") == config


@pytest.mark.parametrize(
    ("regularised", "expected"),
    [("both", (True, True)), ("source", (True, False)), ("target", (False, True))],
)
def test_a_shared_text_can_be_cut_anew_on_one_side_only(regularised, expected):
    tokenizer = SubwordConfig(size=400, regularisation=SamplingConfig())
    config = SharedText(tokenizer=tokenizer, regularised=regularised)
    recutters = config.recutters(config.train(SOURCES, TARGETS))
    assert tuple(each is not None for each in recutters) == expected


def test_choosing_text_imports_neither_torch_nor_sentencepiece():
    code = (
        "import sys, heedful.text.config; "
        "sys.exit(bool({'torch', 'sentencepiece'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
