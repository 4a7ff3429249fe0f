import subprocess
import sys

import pytest
from pydantic import TypeAdapter

from heedful.config import BaseConfig, read_yaml, to_yaml, validate_settings
from heedful.errors import ConfigError
from heedful.tokenization.subword import SubwordTokenizerConfig, UnigramSamplingConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import (
    SeparateTokenizersConfig,
    SharedTokenizerConfig,
    TokenizersConfig,
)

SOURCES = ["puella in horto ambulat", "leo currit"]
TARGETS = ["the girl walks in the garden", "the lion runs"]
SEPARATE = SeparateTokenizersConfig(source=WordTokenizerConfig(), target=CharacterTokenizerConfig())
SHARED = SharedTokenizerConfig(tokenizer=SubwordTokenizerConfig(vocab_size=400))


def test_separate_texts_are_learned_apart():
    source, target = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ).train(SOURCES, TARGETS)
    assert " puella" in source.vocabulary
    assert " puella" not in target.vocabulary


def test_a_shared_text_is_learned_from_both_sides():
    pair = SharedTokenizerConfig(tokenizer=WordTokenizerConfig()).train(SOURCES, TARGETS)
    assert pair.source is pair.target
    assert {" puella", " girl"} <= set(pair.source.vocabulary.tokens)


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.type)
def test_a_saved_pair_loads_and_encodes_the_same(config, tmp_path):
    pair = config.train(SOURCES, TARGETS)
    pair.save(tmp_path / "text")
    loaded = config.load(tmp_path / "text")
    assert loaded.source.encode_batch(SOURCES) == pair.source.encode_batch(SOURCES)
    assert loaded.target.encode_batch(TARGETS) == pair.target.encode_batch(TARGETS)


def test_files_lie_where_the_sides_say(tmp_path):
    SEPARATE.train(SOURCES, TARGETS).save(tmp_path / "separate")
    SHARED.train(SOURCES, TARGETS).save(tmp_path / "shared")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert files == {
        "separate/source/vocabulary.json",
        "separate/target/vocabulary.json",
        "shared/shared/subwords.model",
    }


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.type)
def test_a_choice_reads_back_from_what_is_written(config):
    assert TypeAdapter(TokenizersConfig).validate_python(config.model_dump(mode="json")) == config
    assert "normalization:" in to_yaml(config)


@pytest.mark.parametrize(
    "settings",
    [
        {"type": "word", "max_vocab_size": 4},
        {"type": "word", "min_frequency": 0},
        {"type": "subword", "vocab_size": 260},
        {"type": "subword", "character_coverage": 0.5},
        {"type": "subword", "model_type": "word"},
        {"type": "subword", "subword_regularization": {"type": "unigram-sampling", "alpha": 0}},
        {
            "type": "subword",
            "model_type": "bpe",
            "subword_regularization": {"type": "bpe-dropout", "dropout": 1},
        },
        {"kind": "bytes"},
    ],
)
def test_settings_that_cannot_work_are_refused(settings):
    class Holder(BaseConfig):
        text: TokenizersConfig

    with pytest.raises(ConfigError):
        validate_settings(
            Holder, {"tokenizers": {"type": "shared", "tokenizer": settings}}, location="test.yaml"
        )


@pytest.mark.parametrize(
    ("kind", "needed", "model"), [("sampling", "unigram", "bpe"), ("dropout", "bpe", "unigram")]
)
def test_regularisation_that_does_not_fit_the_model_is_refused(kind, needed, model):
    settings = {"type": "subword", "model_type": model, "subword_regularization": {"type": kind}}
    with pytest.raises(ConfigError) as caught:
        validate_settings(SharedTokenizerConfig, {"tokenizer": settings}, location="test.yaml")
    assert str(caught.value) == (
        f"test.yaml: tokenizer: regularisation of kind '{kind}' needs `model: {needed}`, "
        f"but the model is '{model}'\n"
        "  `heedful recipes --schema` lists every setting and what it takes"
    )


@pytest.mark.parametrize("settings", [{"type": "unigram-sampling"}, {"type": "bpe-dropout"}])
def test_a_regularisation_reads_back_from_what_is_written(settings):
    model = "unigram" if settings["kind"] == "sampling" else "bpe"
    tokenizer = {"type": "subword", "model_type": model, "subword_regularization": settings}
    config = validate_settings(
        SharedTokenizerConfig, {"tokenizer": tokenizer}, location="test.yaml"
    )
    assert (
        validate_settings(
            SharedTokenizerConfig, read_yaml(to_yaml(config), location="x"), location="x"
        )
        == config
    )


@pytest.mark.parametrize(
    ("regularised", "expected"),
    [("both", (True, True)), ("source", (True, False)), ("target", (False, True))],
)
def test_a_shared_text_can_be_cut_anew_on_one_side_only(regularised, expected):
    tokenizer = SubwordTokenizerConfig(
        vocab_size=400, subword_regularization=UnigramSamplingConfig()
    )
    config = SharedTokenizerConfig(tokenizer=tokenizer, regularized_sides=regularised)
    recutters = config.build_regularizers(config.train(SOURCES, TARGETS))
    assert tuple(each is not None for each in recutters) == expected


def test_choosing_text_imports_neither_torch_nor_sentencepiece():
    code = (
        "import sys, heedful.tokenization.tokenizer_pair; "
        "sys.exit(bool({'torch', 'sentencepiece'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
