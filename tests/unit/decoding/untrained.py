"""Translators that have learned nothing: any output is as good as another, but never by chance."""

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
KINDS = ["word", "character", "subword"]
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
def text_pair(kind):
    """Tokenizers of one kind, learned from the corpus."""
    tokenizer = _TOKENIZERS[kind].train(CORPUS)
    return TokenizerPair(tokenizer, tokenizer)


@cache
def model_for(text, *, seed=0):
    """A model of random weights, large enough that it makes up its mind."""
    torch.manual_seed(seed)
    config = validate_settings(Recipe, {"model": _MODEL}, location="test").model
    made = config.build(
        source_vocab_size=len(text.source), target_vocab_size=len(text.target)
    ).eval()
    with torch.no_grad():
        for weights in made.parameters():
            weights.mul_(2.5)
    return made


def build_config(**settings):
    """Decoding settings with short outputs."""
    short = {"max_length_ratio": 1.0, "max_length_offset": 5}
    return DecodingConfig.model_validate({**short, **settings})


def translator(kind="word", *, seed=0, **given):
    """A translator by these settings."""
    text = text_pair(kind)
    return Translator(model_for(text, seed=seed), text, build_config(**given))


def language_model_for(text, *, seed=5):
    """A language model of the target text, of random weights."""
    torch.manual_seed(seed)
    said = {"type": "language-model", "embedding_size": 8, "backbone": {"hidden_size": 8}}
    recipe = {"model": said, "tokenizers": {"type": "shared"}}
    config = validate_settings(Recipe, recipe, location="test").model
    return config.build(
        source_vocab_size=len(text.target), target_vocab_size=len(text.target)
    ).eval()
