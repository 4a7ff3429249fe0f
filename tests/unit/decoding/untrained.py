"""Translators with random parameters: outputs are arbitrary but deterministic."""

from functools import cache

import torch

from heedful.config import validate_settings
from heedful.decoding.config import DecodingConfig
from heedful.recipes import Recipe
from heedful.tasks.translation.translator import Translator
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.tokenizer_pair import TokenizerPair

CORPUS = [
    "the slave is in the garden .",
    "the gardener (a slave) sees the garden, and the dog.",
    "a dog is not a cat; the cat is in the garden",
    "caf\u00e9 au lait, she said: the dog",
] * 3
SOURCES = ["the dog", "", "a cat is in the garden .", "slave", "the garden, and the cat", "  "]
TOKENIZER_TYPES = ["word", "character", "subword"]
_TOKENIZERS = {
    "word": WordTokenizerConfig(),
    "character": CharacterTokenizerConfig(),
    "subword": SubwordTokenizerConfig(vocab_size=300, character_coverage=0.98),
}
_MODEL = {
    "encoder": {"type": "recurrent", "embedding_size": 12, "hidden_size": 12},
    "decoder": {
        "type": "recurrent",
        "embedding_size": 12,
        "hidden_size": 12,
        "wiring": {"type": "step-then-attend"},
        "attention": {"score": {"type": "bilinear"}},
    },
}


@cache
def train_tokenizers(type_name):
    """One tokenizer for both sides, trained on the corpus."""
    tokenizer = _TOKENIZERS[type_name].train(CORPUS)
    return TokenizerPair(tokenizer, tokenizer)


@cache
def build_model(tokenizers, *, seed=0):
    """A model with random parameters, large enough for peaked distributions."""
    torch.manual_seed(seed)
    config = validate_settings(Recipe, {"model": _MODEL}, location="test").model
    model = config.build(
        source_vocab_size=len(tokenizers.source), target_vocab_size=len(tokenizers.target)
    ).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(2.5)
    return model


def build_config(**settings):
    """Decoding settings with short outputs."""
    short = {"max_length_ratio": 1.0, "max_length_offset": 5}
    return DecodingConfig.model_validate({**short, **settings})


def build_translator(tokenizer_type="word", *, seed=0, **settings):
    """A translator with these decoding settings."""
    tokenizers = train_tokenizers(tokenizer_type)
    return Translator(build_model(tokenizers, seed=seed), tokenizers, build_config(**settings))


def build_language_model(tokenizers, *, seed=5):
    """A language model of the target vocabulary with random parameters."""
    torch.manual_seed(seed)
    model = {"type": "language-model", "embedding_size": 8, "backbone": {"hidden_size": 8}}
    settings = {"model": model, "tokenizers": {"type": "shared"}}
    config = validate_settings(Recipe, settings, location="test").model
    vocab_size = len(tokenizers.target)
    return config.build(source_vocab_size=vocab_size, target_vocab_size=vocab_size).eval()
