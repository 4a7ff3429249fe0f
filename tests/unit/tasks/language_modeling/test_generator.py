"""Text generation: streams, samples and whole texts agree; options are checked."""

from itertools import pairwise

import pytest

import heedful
from heedful.data.text.token_stream import LMBatchingConfig
from heedful.errors import ConfigError
from heedful.models.language_model import LanguageModelConfig, RecurrentBackboneConfig
from heedful.tasks.language_modeling.generator import (
    GenerationOptions,
    TextGenerator,
    stream_text,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.vocabulary import EOS
from tests.language_modeling import write_text_recipe

LINES = ["Quis est in horto?", "", "Caecilius \u2581 \u4e2d\u6587 \ue000 in horto est."] * 3
TOKENIZERS = [
    WordTokenizerConfig(),
    CharacterTokenizerConfig(),
    SubwordTokenizerConfig(vocab_size=300),
]
each_tokenizer = pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.type)
OPTIONS = GenerationOptions(max_new_tokens=25, seed=3)


def build_generator(tokenizer_config):
    """A generator with random parameters, which may generate any token."""
    tokenizer = tokenizer_config.train(LINES)
    config = LanguageModelConfig(backbone=RecurrentBackboneConfig(hidden_size=8), embedding_size=4)
    model = config.build(source_vocab_size=len(tokenizer), target_vocab_size=len(tokenizer))
    return TextGenerator(model, tokenizer, LMBatchingConfig(context_length=10))


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generator")
    heedful.train(str(write_text_recipe(folder)), folder / "run")
    return heedful.load(folder / "run", device="cpu")


@each_tokenizer
def test_text_ends_before_the_first_stop_after_the_prompt(config):
    generator = build_generator(config)
    text = generator.generate("in", max_new_tokens=25, seed=3)
    stop = text[8:10], text[12:15]
    options = OPTIONS.model_copy(update={"stop": stop})
    end = min(text.find(phrase, 2) for phrase in stop)
    parts = [result.text for result in generator.stream("in", options)]
    assert parts[-1] == text[:end] == next(generator.predict(["in"], options)).text
    assert all(longer.startswith(part) for part, longer in pairwise(parts))
    assert generator.generate_samples("in", 1, options) == [text[:end]]


def test_result_counts_the_tokens_of_the_prompt():
    result = next(build_generator(CharacterTokenizerConfig()).predict(["in horto"], OPTIONS))
    assert result.num_prompt_tokens == len(result.tokens) - 25 == 9  # a line break before the text


@each_tokenizer
@pytest.mark.parametrize("prompt", ["", "Quis", "in horto\n", "a\nin", "\n\n"])
def test_stream_first_sample_and_whole_text_equal(config, prompt):
    generator = build_generator(config)
    text = generator.generate(prompt, max_new_tokens=25, seed=3)
    parts = [result.text for result in generator.stream(prompt, OPTIONS)]
    assert (parts[0], parts[-1]) == (prompt, text)
    assert all(longer.startswith(part) for part, longer in pairwise(parts))
    samples = generator.generate_samples(prompt, 3, OPTIONS)
    assert samples[0] == text
    assert len(set(samples)) == 3
    assert text.startswith(prompt)


@each_tokenizer
def test_streamed_text_is_the_text_of_its_tokens(config):
    """EOS is a line break; each line is decoded on its own."""
    tokenizer = config.train(LINES)
    tokens = [token for line in tokenizer.encode_batch(LINES) for token in (*line, EOS)]
    text = "".join(stream_text(tokenizer, [EOS], tokens))
    assert text == "\n".join(LINES) + "\n"
    assert "\ufffd" not in text


def test_incomplete_character_is_held_back():
    tokenizer = SubwordTokenizerConfig(vocab_size=300).train(["abc"])
    ids = tokenizer.encode("a\u4e2d")
    assert list(stream_text(tokenizer, [EOS], ids)) == ["a", "\u4e2d"]
    assert list(stream_text(tokenizer, [EOS], ids[:-1])) == ["a", "\ufffd"]


@each_tokenizer
def test_generated_text_has_no_special_tokens(config):
    text = build_generator(config).generate(max_new_tokens=300, temperature=5.0)
    assert not any(token in text for token in ("<pad>", "<unk>", "<s>"))


def test_trained_model_continues_its_training_text(generator):
    text = generator.generate("abcd e", max_new_tokens=10, temperature=0)
    assert text == "abcd efgh\nefgh i"


def test_max_new_tokens_may_exceed_the_context(generator):
    assert generator.lm_batching.context_length == 16
    assert len(generator.generate("abcd", max_new_tokens=100)) == 104


def test_training_text_has_lower_perplexity_than_other_text(generator):
    known, unknown = (generator.evaluate([line])[0].value for line in ("abcd efgh", "hgfe dcba"))
    assert known < unknown
    assert [score.name for score in generator.evaluate(["abcd efgh"])] == [
        "nats per token",
        "perplexity per token",
        "perplexity per word",
        "perplexity per character",
        "bits per character",
    ]
    assert generator.evaluate(["abx"])[0].signature == "context:16|stride:half|unknown:1"


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("temperature", -1.0, "at least 0"),
        ("temperature", float("nan"), "at least 0"),
        ("top_k", 0, "at least 1"),
        ("top_p", 0.0, "above 0 and at most 1"),
        ("top_p", 1.5, "above 0 and at most 1"),
    ],
)
def test_invalid_sampling_option_raises(generator, name, value, allowed):
    with pytest.raises(ConfigError) as caught:
        generator.generate(**{name: value})
    assert str(caught.value) == f"{name}: must be {allowed}, but is {value}\n  change {name}"
