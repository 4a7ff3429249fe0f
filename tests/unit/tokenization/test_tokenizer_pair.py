"""Tokenizers of source and target, and their settings."""

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


def test_separate_tokenizers_train_on_side():
    source, target = SeparateTokenizersConfig(
        source=WordTokenizerConfig(), target=WordTokenizerConfig()
    ).train(SOURCES, TARGETS)
    assert " puella" in source.vocabulary.tokens
    assert " puella" not in target.vocabulary.tokens


def test_shared_tokenizer_trains_on_both_sides():
    tokenizers = SharedTokenizerConfig(tokenizer=WordTokenizerConfig()).train(SOURCES, TARGETS)
    assert tokenizers.source is tokenizers.target
    assert {" puella", " girl"} <= set(tokenizers.source.vocabulary.tokens)


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.type)
def test_saved_tokenizers_encode_the_same(config, tmp_path):
    tokenizers = config.train(SOURCES, TARGETS)
    tokenizers.save(tmp_path / "tokenizers")
    loaded = config.load(tmp_path / "tokenizers")
    assert loaded.source.encode_batch(SOURCES) == tokenizers.source.encode_batch(SOURCES)
    assert loaded.target.encode_batch(TARGETS) == tokenizers.target.encode_batch(TARGETS)


def test_tokenizer_files_are_in_side_folders(tmp_path):
    SEPARATE.train(SOURCES, TARGETS).save(tmp_path / "separate")
    SHARED.train(SOURCES, TARGETS).save(tmp_path / "shared")
    files = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.*")}
    assert files == {
        "separate/source/vocabulary.json",
        "separate/target/vocabulary.json",
        "shared/shared/subwords.model",
    }


@pytest.mark.parametrize("config", [SEPARATE, SHARED], ids=lambda config: config.type)
def test_tokenizers_config_round_trips(config):
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
        {"type": "bytes"},
    ],
)
def test_invalid_tokenizer_settings_raise(settings):
    class Holder(BaseConfig):
        tokenizers: TokenizersConfig

    with pytest.raises(ConfigError):
        validate_settings(
            Holder, {"tokenizers": {"type": "shared", "tokenizer": settings}}, location="test.yaml"
        )


@pytest.mark.parametrize(
    ("regularization", "required", "model_type"),
    [("unigram-sampling", "unigram", "bpe"), ("bpe-dropout", "bpe", "unigram")],
)
def test_regularization_must_match_model_type(regularization, required, model_type):
    settings = {
        "type": "subword",
        "model_type": model_type,
        "subword_regularization": {"type": regularization},
    }
    with pytest.raises(ConfigError) as caught:
        validate_settings(SharedTokenizerConfig, {"tokenizer": settings}, location="test.yaml")
    assert str(caught.value) == (
        f"test.yaml: tokenizer: subword_regularization '{regularization}' requires "
        f"`model_type: {required}`, but model_type is '{model_type}'\n"
        "  `heedful recipes --schema` lists every setting and its values"
    )


@pytest.mark.parametrize("settings", [{"type": "unigram-sampling"}, {"type": "bpe-dropout"}])
def test_subword_regularization_config_round_trips(settings):
    model_type = "unigram" if settings["type"] == "unigram-sampling" else "bpe"
    tokenizer = {"type": "subword", "model_type": model_type, "subword_regularization": settings}
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
    ("regularized_sides", "expected"),
    [("both", (True, True)), ("source", (True, False)), ("target", (False, True))],
)
def test_shared_tokenizer_can_be_regularized_on_one_side(regularized_sides, expected):
    tokenizer = SubwordTokenizerConfig(
        vocab_size=400, subword_regularization=UnigramSamplingConfig()
    )
    config = SharedTokenizerConfig(tokenizer=tokenizer, regularized_sides=regularized_sides)
    regularizers = config.build_regularizers(config.train(SOURCES, TARGETS))
    assert tuple(regularizer is not None for regularizer in regularizers) == expected


def test_tokenizer_configs_do_not_import_torch_or_sentencepiece():
    code = (
        "import sys, heedful.tokenization.tokenizer_pair; "
        "sys.exit(bool({'torch', 'sentencepiece'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
