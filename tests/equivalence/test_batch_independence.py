"""A sentence gives the same output alone, in any batch, order or padding.

Every built-in recipe is tested as it is decoded: greedily or with its own beam size and length
penalty; language models by the probabilities of texts and by samples after prompts; forecasters by
log-probabilities and sample paths of series; taggers and classifiers by the probabilities of
labels. Models are made small and their parameters drawn so that the source matters for every token.
Outputs are compared in float64, where rounding does not decide between two tokens of almost equal
probability; float32 is tested on the scores of given outputs.
"""

import random
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from torch.nn.functional import pad

from heedful.acceleration.registry import accelerate_for_inference
from heedful.data.series.series import Series
from heedful.data.text.batching import Batch, SourceBatch, collate_sources
from heedful.data.text.token_stream import LMBatch
from heedful.models.base import Seq2SeqModel
from heedful.models.language_model import BoundedContextModel
from heedful.recipes import load_recipe, recipe_names
from heedful.recipes.recipe import ModelConfig
from heedful.search.sampling import SamplingOptions, random_generators, sample
from heedful.tasks.language_modeling.generator import generate_tokens
from heedful.tokenization.vocabulary import NUM_SPECIAL_TOKENS, PAD
from tests.forecasting import HOURLY
from tests.forecasting import collate as collate_series
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide

VOCABULARY = 13
LENGTHS = (7, 1, 11)
MAX_SIZES = {  # small, and so that texts exceed every window and block
    **dict.fromkeys(("size", "embedding_size", "hidden_size", "score_size", "output_size"), 8),
    **{"intermediate_size": 8, "num_layers": 4, "num_heads": 2, "num_experts": 8},
    **{"num_groups": 4, "input_size": 8, "cell_state_size": 10, "num_repeats": 1, "half_width": 2},
}
POINTING = {"pointer-network-2015", "pointer-network-2015-small"}  # whose outputs are positions
MAX_LIST_LENGTHS = {"feed_forward": 4}
TASKS = {name: load_recipe(name).task.name for name in recipe_names()}


def select_recipes(*tasks):
    return [name for name, task in TASKS.items() if task in tasks]


each_translation_recipe = pytest.mark.parametrize("name", select_recipes("translation"))
each_text_recipe = pytest.mark.parametrize(
    "name", select_recipes("language-modeling", "masked-language-modeling")
)
each_label_recipe = pytest.mark.parametrize("name", select_recipes("tagging", "classification"))
each_language_model = pytest.mark.parametrize("name", select_recipes("language-modeling"))
each_forecaster = pytest.mark.parametrize("name", select_recipes("forecasting"))


@pytest.fixture(autouse=True)
def without_shape_checks():
    """Searches take hundreds of steps; other tests check the shapes."""
    with unchecked():
        yield


def shrink(settings: Any, key: str = "") -> Any:
    """Limit every size in nested settings."""
    if isinstance(settings, dict):
        return {name: shrink(value, name) for name, value in settings.items()}
    if isinstance(settings, list):
        return [shrink(value, key) for value in settings[: MAX_LIST_LENGTHS.get(key)]]
    is_integer = isinstance(settings, int) and not isinstance(settings, bool)
    return min(settings, MAX_SIZES[key]) if is_integer and key in MAX_SIZES else settings


def build(name: str, dtype: torch.dtype = torch.float64) -> Any:
    """A small model of a recipe, accelerated as predictors do it."""
    torch.manual_seed(1)
    settings = shrink(load_recipe(name).model.model_dump(mode="json", exclude_unset=True))
    if (settings.get("characters") or {}).get("combine") == "concat":
        settings["encoder"]["embedding_size"] *= 2  # half of it for the features of characters
    config = TypeAdapter(ModelConfig).validate_python(settings)
    model = config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:  # biases of that size would predict the same for every text
                parameter.normal_(std=2 * parameter[0].numel() ** -0.5)
    return accelerate_for_inference(model.to(dtype), "cpu")


def texts():
    generator = torch.Generator().manual_seed(3)
    return [torch.randint(4, VOCABULARY, (size,), generator=generator).tolist() for size in LENGTHS]


def search(model: Seq2SeqModel, sources: SourceBatch, decoding: Any, *, beam_size: int):
    return model.search(
        sources,
        beam_size=beam_size,
        max_lengths=sources.lengths // 3 + 2,
        length_penalty=decoding.length_penalty.build(),
    )


def batched_results(run, sequences=None):
    """Yield the results of all texts in one batch; then in another order, with more padding."""
    sequences, order = sequences or texts(), (2, 0, 1)
    yield run(collate_sources(sequences))
    reordered = collate_sources([sequences[row] for row in order])
    padded = SourceBatch(pad(reordered.tokens, (0, 6), value=PAD), reordered.lengths)
    results = run(padded)
    yield [results[order.index(row)] for row in range(len(order))]


def assert_same(actual, expected, *, tolerance):
    assert actual.tokens == expected.tokens
    assert actual.score == pytest.approx(expected.score, rel=tolerance)
    assert actual.log_probs == pytest.approx(expected.log_probs, rel=tolerance, abs=tolerance)
    pairs = (actual.weights, expected.weights), (actual.eos_weights, expected.eos_weights)
    for weights, expected_weights in pairs:
        source_length = expected_weights.shape[-1]
        assert weights[..., :source_length] == pytest.approx(expected_weights, abs=1e-5)
        assert not weights[..., source_length:].any()


@each_translation_recipe
def test_search_does_not_depend_on_the_batch(name):
    """The recipes take turns with their own beam size and greedy search."""
    model, decoding = build(name), load_recipe(name).decoding
    beam_size = 1 if list(TASKS).index(name) % 2 else decoding.beam_size

    def run(sources):
        return search(model, sources, decoding, beam_size=beam_size)

    single = [run(collate_sources([text]))[0] for text in texts()]
    for batched in batched_results(run):
        for expected_outputs, outputs in zip(single, batched, strict=True):
            assert len(expected_outputs) == len(outputs)
            # There are fewer lists of positions of one token.
            assert len(outputs) == beam_size or name in POINTING
            for expected, actual in zip(expected_outputs, outputs, strict=True):
                assert_same(actual, expected, tolerance=1e-9)


@each_translation_recipe
def test_scores_of_given_outputs_do_not_depend_on_the_batch_in_float32(name):
    model, sequences = build(name, torch.float32), texts()
    outputs = [text[::-1][:4] for text in sequences]
    if name in POINTING:  # to each position once
        outputs = [[NUM_SPECIAL_TOKENS + index for index, _ in enumerate(text)] for text in outputs]
    single = [
        model.score(collate_sources([text]), [output])[0]
        for text, output in zip(sequences, outputs, strict=True)
    ]

    def run(sources):
        rows = [LENGTHS.index(length - 1) for length in sources.lengths.tolist()]
        return model.score(sources, [outputs[row] for row in rows])

    for batched in batched_results(run):
        for expected, actual in zip(single, batched, strict=True):
            assert_same(actual, expected, tolerance=1e-4)


@each_text_recipe
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_text_probabilities_do_not_depend_on_the_batch(name, dtype):
    model = build(name, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4

    def run(sources):
        with torch.no_grad():
            log_probs = model(LMBatch(sources.tokens, sources.tokens)).log_probs
        rows = zip(log_probs, sources.lengths.tolist(), strict=True)
        return [row[:length] for row, length in rows]

    single = [run(collate_sources([text]))[0] for text in texts()]
    for batched in batched_results(run):
        for expected, actual in zip(single, batched, strict=True):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@each_label_recipe
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_probabilities_of_labels_do_not_depend_on_the_batch(name, dtype):
    model = build(name, dtype)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-4
    sequences = texts()
    if TASKS[name] == "tagging":  # each word is followed by a character
        sequences = [
            [id_ for word in text for id_ in (word, VOCABULARY + word)] for text in texts()
        ]

    def run(sources):
        """Return the log-probabilities of some tags, or of all labels of a text."""
        num_words = [(length - 1) // 2 for length in sources.lengths.tolist()]
        targets = [[4 + index % 5 for index in range(count)] for count in num_words]
        targets = collate_sources(targets).tokens
        with torch.no_grad():
            return model(Batch(sources, targets, targets)).log_probs

    single = [run(collate_sources([text]))[0] for text in sequences]
    for batched in batched_results(run, sequences):
        for expected, actual in zip(single, batched, strict=True):
            torch.testing.assert_close(actual, expected, rtol=tolerance, atol=tolerance)


@each_language_model
@pytest.mark.parametrize("temperature", [0.0, 1.0], ids=["greedy", "sampled"])
def test_continuations_do_not_depend_on_the_batch(name, temperature):
    """Prompts differ in length, one exceeds the context, and all continuations do."""
    model, rng = build(name), random.Random(3)
    prompts = [rng.choices(range(4, VOCABULARY), k=length) for length in (4, 1, 9, 2, 7)]

    def continue_prompts(rows):
        outputs = {row: [] for row in rows}
        for index, token in generate_tokens(
            model,
            [prompts[row] for row in rows],
            context_length=6,
            max_new_tokens=10,
            options=SamplingOptions(temperature),
            generators=random_generators(0, rows),
            is_stopped=lambda index: rows[index] == 3 and len(outputs[3]) >= 5,
        ):
            outputs[rows[index]].append(token)
        return outputs

    alone = {row: continue_prompts([row])[row] for row in range(5)}
    assert [len(tokens) for tokens in alone.values()] == [10, 10, 10, 5, 10]
    assert continue_prompts([2, 0, 4, 1, 3]) == alone
    bounded = BoundedContextModel(model, context_length=6)
    for row, prompt in enumerate(prompts):
        (tokens,) = sample(
            bounded,
            bounded.encode_prompt(torch.tensor([prompt[:-1]], dtype=torch.long)),
            bos=torch.tensor(prompt[-1:]),
            eos=None,
            max_lengths=torch.tensor([10]),
            options=SamplingOptions(temperature=0),
        )
        assert temperature or tokens[: len(alone[row])] == alone[row]


@each_forecaster
def test_forecasts_do_not_depend_on_the_batch(name):
    """The series have different lengths; parameters of distributions are float32."""
    model, config = build(name), load_recipe(name).model
    rng = np.random.default_rng(3)
    series = [Series(str(n), rng.normal(9, 2, n), HOURLY) for n in (30, 200, 230)]

    def run(rows):
        batch = collate_series(config, [series[row] for row in rows])
        generators = [torch.Generator().manual_seed(row) for row in rows]
        with torch.no_grad():
            return model(batch).log_probs, model.sample_paths(batch, 2, generators)

    order = [2, 0, 1]
    batched = run(order)
    for index, row in enumerate(order):
        for actual, expected in zip(batched, run([row]), strict=True):
            torch.testing.assert_close(actual[index], expected[0], rtol=1e-4, atol=1e-4)
