"""Laws of `Predictor`, by which commands and Python use the models of all tasks."""

import json
from base64 import b64encode
from contextlib import suppress
from itertools import count

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.data.images.labeled_images import LabeledImage
from heedful.decoding.requests import RequestControl
from heedful.errors import ConfigError, DataError, RunError
from heedful.plotting.raster import encode_png
from heedful.runs import load_as
from heedful.tasks.classification.predictor import Classifier
from heedful.tasks.registry import TASKS
from heedful.tasks.tagging.predictor import Tagger
from tests.commands import write_random_run
from tests.forecasting import BACKBONES, SIZES, count_series

TEXTS = ["a b c", "c a", "b", "a a b c c"]
WORDS = {"type": "shared", "tokenizer": {"type": "word"}}
ENCODER = {"type": "recurrent", "embedding_size": 6, "hidden_size": 6}
ATTENTION = {"score": {"type": "bilinear"}}
DECODER = {"type": "recurrent", "embedding_size": 6, "hidden_size": 6, "attention": ATTENTION}
PIXELS = {
    "type": "cnn",
    "image_size": [8, 8],
    "num_channels": 1,
    "channels": [4],
    "pooling": [[2, 2]],
}
GLIMPSES = {"type": "recurrent-attention", "image_size": 8, "glimpse_size": 4, "num_classes": 3}
IMAGES = np.random.default_rng(0).integers(0, 256, (4, 8, 8), np.uint8)
SERIES = count_series(4)


def separate(source, target):
    return {"type": "separate", "source": {"type": source}, "target": {"type": target}}


SETTINGS = {
    "translation": {"model": {"encoder": ENCODER, "decoder": DECODER}, "tokenizers": WORDS},
    "captioning": {
        "model": {"type": "captioning", "encoder": PIXELS, "decoder": DECODER},
        "tokenizers": WORDS,
    },
    "classification": {
        "model": {"type": "text-classifier", "encoder": ENCODER},
        "tokenizers": separate("word", "label"),
    },
    "tagging": {
        "model": {"type": "sequence-tagger", "encoder": ENCODER},
        "tokenizers": separate("whitespace", "whitespace"),
    },
    "language-modeling": {
        "model": {"type": "language-model", "embedding_size": 6, "backbone": {"hidden_size": 6}},
        "tokenizers": WORDS,
    },
    "masked-language-modeling": {
        "model": {"type": "masked-language-model", "tie_embeddings": False, "encoder": ENCODER},
        "tokenizers": WORDS,
    },
    "forecasting": {"model": {**SIZES, **BACKBONES["lstm"]}, "tokenizers": {"type": "none"}},
    "glimpses": {"model": GLIMPSES, "tokenizers": {"type": "none"}},
}


def series_to_json(series):
    times = series.format_times(0, len(series.values))
    values = [None if np.isnan(value) else value for value in series.values.tolist()]
    return {"id": series.id, "time": times, "value": values}


# Requests of each task, and the same ones as JSON.
REQUESTS = {
    "captioning": (list(IMAGES), [image.tolist() for image in IMAGES]),
    "masked-language-modeling": ([f"{text} [MASK]" for text in TEXTS],) * 2,
    "forecasting": (SERIES, list(map(series_to_json, SERIES))),
    "glimpses": (
        [LabeledImage(image, -1) for image in IMAGES],
        [{"pixels": image.tolist()} for image in IMAGES],
    ),
}
OPTIONS = {
    "translation": {"beam_size": 2, "n_best": 2},
    "captioning": {"beam_size": 1},
    "language-modeling": {"max_new_tokens": 4, "temperature": 0.5},
    "forecasting": {"num_samples": 5, "seed": 3},
}


class Case:
    """A predictor of random parameters, and what it is used with."""

    def __init__(self, task, run):
        self.predictor = heedful.load(run, device="cpu")
        self.requests, self.json = REQUESTS.get(task, (TEXTS, TEXTS))
        self.options = self.predictor.parse_options(OPTIONS.get(task, {}))

    def predict(self, requests, **options):
        return [to_text(r) for r in self.predictor.predict(requests, self.options, **options)]


def to_text(result):
    """Return all that JSON says of a result, with numbers rounded."""
    values = json.loads(
        json.dumps(result.to_json()), parse_float=lambda text: round(float(text), 4)
    )
    return result.text, list(result.tokens), values


@pytest.fixture(scope="module", params=TASKS)
def case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("laws") / "run"
    run = write_random_run(folder, SETTINGS[request.param], TEXTS, TEXTS, seed=1)
    return Case(request.param, run)


def test_batch_returns_the_results_of_requests_one_by_one_in_order(case):
    together = case.predict(case.requests)
    alone = [case.predict([r], start_index=i)[0] for i, r in enumerate(case.requests, 1)]
    assert together == alone
    assert len({str(result) for result in together}) > 1  # else the order would not be seen


def test_requests_may_be_json(case):
    values = json.loads(json.dumps(case.json))
    assert case.predict(map(case.predictor.parse_json, values)) == case.predict(case.requests)


def test_last_result_of_a_stream_is_the_prediction(case):
    *_, last = case.predictor.stream(case.requests[0], case.options)
    assert to_text(last) == case.predict(case.requests[:1])[0]


def test_results_have_layers_on_request(case):
    results = list(case.predictor.predict(case.requests[:2], need_layers=True))
    assert len(results) == 2
    for result in results:
        for layer in result.attention_layers:
            assert layer.weights.shape[1:] == (len(layer.queries.tokens), len(layer.keys.tokens))


def test_unknown_option_raises_that_names_it(case):
    with pytest.raises(ConfigError, match="beam_sice"):
        case.predictor.parse_options({"beam_sice": 3})


@pytest.mark.parametrize("value", [5, None, 2.5])
def test_json_of_another_type_raises(case, value):
    with pytest.raises(DataError, match=r"^request: must be an? .*, but is "):
        case.predictor.parse_json(value)


@pytest.fixture(scope="module", params=["captioning", "glimpses"])
def image_case(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "run"
    return Case(
        request.param, write_random_run(folder, SETTINGS[request.param], TEXTS, TEXTS, seed=1)
    )


LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
FIELDS = st.sampled_from(["text", "tokens", "tags", "id", "time", "value", "image", "target", "x"])
JSON_VALUES = st.recursive(
    LEAVES,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(FIELDS, values, max_size=4),
    max_leaves=12,
)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(value=JSON_VALUES)
def test_any_json_value_is_a_request_or_a_data_error(case, value):
    with suppress(DataError):
        case.predictor.parse_json(value)


def test_images_in_base64_are_the_pixels(image_case):
    texts = [b64encode(encode_png(image)).decode() for image in IMAGES]
    parsed = map(image_case.predictor.parse_json, texts)
    assert image_case.predict(parsed) == image_case.predict(image_case.requests)


HOSTILE_IMAGES = {
    "a file name": ("/etc/passwd", "is not base64"),
    "a URL": ("http://localhost/image.png", "is not base64"),
    "characters beyond ASCII": ("\u00e4", "is not base64"),
    "nothing": ("", "the file is empty"),
    "another format": (b64encode(b"GIF89a" + bytes(50)).decode(), "not an image"),
    "a bomb": (b64encode(encode_png(np.zeros((20_000, 1_001), np.uint8))).decode(), "the limit is"),
    "a broken file": (b64encode(encode_png(IMAGES[0])[:60]).decode(), "broken or truncated"),
    "unequal rows": ([[1, 2], [3]], "must be"),
    "no bytes": ([[1, 256]], "must be"),
    "fractions": ([[0.5]], "must be"),
    "an empty list": ([], "must be"),
}


@pytest.mark.parametrize("name", HOSTILE_IMAGES)
def test_hostile_image_raises(image_case, name):
    value, message = HOSTILE_IMAGES[name]
    if isinstance(value, list) and isinstance(image_case.json[0], dict):
        value = {"pixels": value}
    with pytest.raises(DataError, match=message):
        image_case.predictor.parse_json(value)


def test_load_as_returns_the_class_or_names_that_of_the_run(tmp_path):
    settings = SETTINGS["classification"]
    run = write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=0)
    assert load_as(run, Classifier, device="cpu").classify("a b").source == "a b"
    with pytest.raises(RunError, match="its predictor is a Classifier, not a Tagger"):
        load_as(run, Tagger)


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("decoding", [{}, {"min_length": 4}, {"required_phrases": ["c a"]}])
def test_cancelled_request_ends_and_leaves_the_others(tmp_path, beam_size, decoding):
    decoding = {"beam_size": beam_size, "max_length": 12, **decoding}
    settings = SETTINGS["translation"] | {"decoding": decoding}
    predictor = heedful.load(write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=1))
    expected = list(predictor.predict(TEXTS))
    calls = count()
    # cancels the second request in the middle of the search
    control = RequestControl(lambda index: index == 2 and next(calls) > 5, lambda index: index)
    results = list(predictor.predict(TEXTS, control=control))
    others = [0, 2, 3]
    assert [results[i].tokens for i in others] == [expected[i].tokens for i in others]
    for index in others:
        assert results[index].log_probs == pytest.approx(expected[index].log_probs, abs=1e-5)
    assert len(results[1].tokens) <= 5 < len(expected[1].tokens)


STREAMED = {
    "greedy": {"beam_size": 1},
    "beam": {"beam_size": 4},
    "sampled": {"sampling": {"seed": 3}},
    "replaced": {"beam_size": 1, "unk_replacement": "copy"},
}


@pytest.fixture(scope="module", params=["one model", "ensemble", "copying"])
def streaming(request, tmp_path_factory):
    """Return a function that loads a translator with some settings."""
    folder, settings = tmp_path_factory.mktemp("streaming"), SETTINGS["translation"]
    if request.param == "copying":
        decoder = {**DECODER, "output_head": {"type": "copy"}}
        tokenizers = {"type": "shared", "tokenizer": {"type": "word", "open_vocabulary": True}}
        settings = {"model": {"encoder": ENCODER, "decoder": decoder}, "tokenizers": tokenizers}
    runs = [
        write_random_run(folder / str(seed), settings, TEXTS, TEXTS, seed=seed) for seed in (1, 2)
    ]
    others = runs[1:] if request.param == "ensemble" else []

    def load(**decoding):
        changes = [f"decoding.{name}={json.dumps(value)}" for name, value in decoding.items()]
        return heedful.load(runs[0], ensemble_with=others, device="cpu", settings=changes)

    return load


@pytest.mark.parametrize("decoding", STREAMED)
def test_stream_grows_token_by_token_to_the_result(streaming, decoding):
    predictor = streaming(max_length=9, min_length=9, **STREAMED[decoding])
    assert predictor.streams_by_token
    texts = ["a q c", "c a"]  # with an unknown word
    streams = zip(*map(predictor.stream, texts), strict=True)  # in turn
    for results, text in zip(zip(*streams, strict=True), texts, strict=True):
        grown = [result.tokens for result in results]
        expected = next(predictor.predict([text]))
        assert to_text(results[-1]) == to_text(expected)
        assert all(expected.tokens[: len(tokens)] == tokens for tokens in grown)
        assert all(expected.text.startswith(result.text) for result in results)
        assert grown == sorted(grown, key=len)
        assert len(grown) >= 11
        assert decoding == "beam" or [len(tokens) for tokens in grown[:10]] == [*range(10)]


@pytest.mark.parametrize(
    "decoding", [{"mbr": {"num_samples": 4}}, {"sampling": {}, "n_best": 2}], ids=["mbr", "n-best"]
)
def test_stream_of_what_is_chosen_among_outputs_is_the_result_alone(streaming, decoding):
    predictor = streaming(max_length=9, **decoding)
    assert not predictor.streams_by_token
    (result,) = predictor.stream("a b")
    assert to_text(result) == to_text(next(predictor.predict(["a b"])))
