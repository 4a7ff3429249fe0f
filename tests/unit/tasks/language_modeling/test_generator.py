"""Text generation: streams, samples and whole texts agree; options are checked."""

import json
import shutil
from itertools import count, pairwise

import pytest

import heedful as library
from heedful.data.text.token_stream import LMBatchingConfig
from heedful.decoding.requests import RequestControl
from heedful.errors import ConfigError
from heedful.models.language_model import (
    LanguageModelConfig,
    RecurrentBackboneConfig,
    TransformerBackboneConfig,
)
from heedful.tasks.language_modeling.generator import (
    GenerationOptions,
    TextGenerator,
    stream_text,
)
from heedful.tokenization.subword import SubwordTokenizerConfig
from heedful.tokenization.tokenizer import CharacterTokenizerConfig, WordTokenizerConfig
from heedful.tokenization.vocabulary import EOS
from tests.commands import heedful
from tests.language_modeling import write_text_recipe

LINES = ["Quis est in horto?", "", "Caecilius \u2581 \u4e2d\u6587 \ue000 in horto est."] * 3
TOKENIZERS = [
    WordTokenizerConfig(),
    CharacterTokenizerConfig(),
    SubwordTokenizerConfig(vocab_size=300),
]
each_tokenizer = pytest.mark.parametrize("config", TOKENIZERS, ids=lambda config: config.type)
OPTIONS = GenerationOptions(max_new_tokens=25, seed=3)


BACKBONES = {
    "recurrent": RecurrentBackboneConfig(hidden_size=8),
    "transformer": TransformerBackboneConfig(
        hidden_size=4, num_layers=2, attention={"multi_head": {"num_heads": 2}}
    ),
}


def build_generator(tokenizer_config, backbone="recurrent"):
    """A generator with random parameters, which may generate any token."""
    tokenizer = tokenizer_config.train(LINES)
    config = LanguageModelConfig(
        backbone=BACKBONES[backbone], embedding_size=4, positional_encoding={"type": "sinusoidal"}
    )
    model = config.build(source_vocab_size=len(tokenizer), target_vocab_size=len(tokenizer))
    return TextGenerator(model, tokenizer, LMBatchingConfig(context_length=10))


@pytest.fixture(scope="module")
def generator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("generator")
    library.train(str(write_text_recipe(folder)), folder / "run")
    return library.load(folder / "run", device="cpu")


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


@pytest.mark.parametrize("backbone", BACKBONES)
@pytest.mark.parametrize("temperature", [0, 1], ids=["greedy", "sampled"])
def test_batch_of_prompts_matches_one_prompt_at_a_time(backbone, temperature):
    generator = build_generator(CharacterTokenizerConfig(), backbone)
    options = GenerationOptions(max_new_tokens=25, temperature=temperature, stop=("te",))
    prompts = ["", "Quis", "Caecilius in horto est", "in\nhorto", "est", "Quis"]
    alone = [
        next(generator.predict([prompt], options, start_index=index))
        for index, prompt in enumerate(prompts, start=1)
    ]
    assert list(generator.predict(prompts, options)) == alone
    assert (alone[1] == alone[5]) == (temperature == 0)
    generator.batch_size = 4
    assert list(generator.predict(iter(prompts), options)) == alone


@pytest.mark.parametrize("backbone", BACKBONES)
def test_cancelled_prompt_ends_and_leaves_the_others(backbone):
    generator = build_generator(CharacterTokenizerConfig(), backbone)
    prompts = ["Quis", "in horto", "est"]
    expected = list(generator.predict(prompts, GenerationOptions(max_new_tokens=25)))
    calls = count()
    control = RequestControl(lambda index: index == 2 and next(calls) > 5, lambda index: index)
    options = GenerationOptions(max_new_tokens=25)
    results = list(generator.predict(prompts, options, control=control))
    assert [results[0], results[2]] == [expected[0], expected[2]]
    assert 5 <= len(results[1].text) - len("in horto") <= 6


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
def test_streamed_text_is_the_text_of_the_tokens(config):
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


def test_trained_model_continues_training_text(generator):
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


@pytest.fixture
def call(capsys, monkeypatch):
    def run(*arguments, stdin=""):
        return heedful(capsys, monkeypatch, *arguments, stdin=stdin)

    return run


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A barely trained run of each type of language model."""
    folders = {}
    for model_type in ("language-model", "masked-language-model"):
        folder = tmp_path_factory.mktemp(model_type)
        recipe = write_text_recipe(folder, model_type, steps=4, every=2)
        library.train(str(recipe), folder / "run")
        folders[model_type] = folder / "run"
    return folders


@pytest.fixture
def run(runs):
    return runs["language-model"]


def test_text_starts_with_the_prompt_and_has_max_new_tokens(call, run):
    result = call("generate", run, "abcd", "--max-new-tokens", 50)
    assert result.code == 0
    assert result.out.startswith("abcd")
    assert len(result.out) == 4 + 50 + 1


def test_text_without_prompt_starts_on_a_new_line(call, run):
    assert len(call("generate", run, "--max-new-tokens", 9).out) == 10


def test_text_depends_on_the_seed(call, run):
    first, second = (call("generate", run, "ab", "--seed", 1).out for _ in range(2))
    assert first == second
    assert call("generate", run, "ab", "--seed", 2).out != first


def test_samples_separated_by_a_line(call, run):
    single = call("generate", run, "ab", "--max-new-tokens", 20).out
    several = call("generate", run, "ab", "--max-new-tokens", 20, "--num-samples", 3).out
    texts = several.removesuffix("\n").split("\n----\n")
    assert len(texts) == 3
    assert texts[0] + "\n" == single


def test_samples_saved_to_a_file(call, run, tmp_path):
    path = tmp_path / "out.txt"
    result = call("generate", run, "ab", "--num-samples", 2, "-o", path)
    assert (result.out, result.err) == ("", f"wrote {path}\n")
    assert path.read_text() == call("generate", run, "ab", "--num-samples", 2).out


@pytest.mark.parametrize("greedy", [("--temperature", 0), ("--top-k", 1), ("--top-p", 1e-9)])
def test_most_likely_token_is_taken_with_extreme_options(call, run, greedy):
    expected = call("generate", run, "ab", "--temperature", 0).out
    assert call("generate", run, "ab", *greedy, "--seed", 5).out == expected


def test_invalid_top_p_raises(call, run):
    result = call("generate", run, "--top-p", 0)
    assert (result.code, result.err) == (
        2,
        "heedful: top_p: must be above 0 and at most 1, but is 0.0\n  change top_p\n",
    )


def test_training_on_a_file_suggests_generate(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    shutil.move(tmp_path / "text.txt", tmp_path / "other.txt")
    (tmp_path / "dev.txt").write_text("abcd\n")
    files = "--text", tmp_path / "other.txt", "--dev-text", tmp_path / "dev.txt"
    result = call("train", recipe, *files, "--run", tmp_path / "run")
    assert result.out == (
        f"{tmp_path}/run: reached max_steps=2; try: heedful generate {tmp_path}/run\n"
    )
    assert f"reading {tmp_path}/other.txt\n" in result.err
    assert "vocabulary: 17 tokens\ntrain: 120 lines, 1,200 tokens\n" in result.err
    assert "dev: 1 line, 5 tokens\n" in result.err


def test_unknown_tokens_counted(call, tmp_path):
    recipe = write_text_recipe(tmp_path, steps=2, every=2)
    (tmp_path / "dev.txt").write_text("abxy\n")
    result = call("train", recipe, "--dev-text", tmp_path / "dev.txt", "--run", tmp_path / "run")
    assert "dev: 1 line, 5 tokens, 2 of them unknown\n" in result.err


def test_language_model_is_evaluated_on_a_text(call, run, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    result = call("evaluate", run, tmp_path / "test.txt")
    assert result.code == 0
    title, *lines = result.out.splitlines()
    assert title == f"2 lines of {tmp_path}/test.txt"
    assert [line[:24].strip() for line in lines] == [
        "nats per token",
        "perplexity per token",
        "perplexity per word",
        "perplexity per character",
        "bits per character",
    ]
    assert all(line.endswith("   context:16|stride:half|unknown:0") for line in lines)
    scores = json.loads(call("evaluate", run, tmp_path / "test.txt", "--json").out)
    assert [score["name"] for score in scores] == [line[:24].strip() for line in lines]


def test_masked_language_model_is_evaluated_on_a_text(call, runs, tmp_path):
    (tmp_path / "test.txt").write_text("abcd efgh\nijkl\n")
    result = call("evaluate", runs["masked-language-model"], tmp_path / "test.txt")
    assert [line[:20].strip() for line in result.out.splitlines()[1:]] == [
        "nats per token",
        "perplexity per token",
        "token accuracy",
    ]


USE_GENERATE = "this run is a language model: it continues a text\n  use `heedful generate {run}`"


@pytest.mark.parametrize(
    ("arguments", "task", "message"),
    [
        (["generate"], "pairs", "this run translates\n  use `heedful translate {run} FILE`"),
        (["translate"], "language-model", USE_GENERATE),
        (
            ["show", "--search-tree", "ab"],
            "language-model",
            "this model has no search to draw\n  name a run that translates or captions",
        ),
        (
            ["show", "ab"],
            "language-model",
            "this model has no attention to draw\n  name a run of a model with attention",
        ),
        (
            ["generate"],
            "masked-language-model",
            "this run is a masked language model: it fills masks\n"
            "  use `heedful evaluate {run} FILE`",
        ),
    ],
)
def test_run_of_another_task_raises(call, runs, trained, arguments, task, message):
    run = {**runs, "pairs": trained}[task]
    result = call(arguments[0], run, *arguments[1:])
    assert (result.code, result.out) == (2, "")
    assert result.err == f"heedful: {run}: {message.format(run=run)}\n"


def test_evaluation_files_of_another_task_reported(call, run, trained):
    result = call("evaluate", run, "--source", "a", "--target", "b")
    assert (result.code, result.err) == (
        2,
        "heedful: --source: this run is a language model: it continues a text\n"
        "  give --text FILE\n",
    )
    result = call("evaluate", trained, "a.txt", "--source", "b")
    assert (result.code, result.err) == (
        2,
        "heedful: --source: given together with --pairs\n"
        "  leave out --pairs, or give nothing else\n",
    )
    result = call("evaluate", run)
    assert (result.code, result.err) == (
        2,
        "heedful: data.test: the recipe of the run names no test set\n  give --text FILE\n",
    )
