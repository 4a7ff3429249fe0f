"""Laws of `Predictor.explain` over all tasks, with models that attend where the task has any."""

import json

import numpy as np
import pytest

import heedful
from heedful.attention.edits import AttentionEdit
from heedful.errors import ConfigError
from heedful.tasks.registry import TASKS
from tests.commands import write_random_run
from tests.forecasting import BACKBONES, SIZES
from tests.laws.test_predictor_laws import REQUESTS, SETTINGS, TEXTS

TRANSFORMER = {
    "type": "transformer",
    "hidden_size": 8,
    "num_layers": 2,
    "attention": {"score": {"type": "scaled-dot"}, "multi_head": {"num_heads": 2}},
}
LANGUAGE_MODEL = {
    "type": "language-model",
    "embedding_size": 8,
    "backbone": TRANSFORMER,
    "positional_encoding": {"type": "sinusoidal"},
}
MODELS = {
    "language-modeling": LANGUAGE_MODEL,
    "masked-language-modeling": {"type": "masked-language-model", "encoder": TRANSFORMER},
    "classification": {"type": "text-classifier", "encoder": TRANSFORMER},
    "tagging": {"type": "sequence-tagger", "encoder": TRANSFORMER},
    "forecasting": {**SIZES, **BACKBONES["transformer"]},
}
DRAW_WINDOW = {"type": "draw-window", "image_size": 8, "hidden_size": 8, "window_size": 3}
WITHOUT_ATTENTION = {"glimpses"}
WITHOUT_STEPS = {"forecasting"}  # which predict distributions of numbers
OPTIONS = {
    "language-modeling": {"max_new_tokens": 4, "temperature": 0},
    "forecasting": {"num_samples": 20},
}


class Case:
    def __init__(self, task, folder):
        settings = {**SETTINGS[task], "model": MODELS.get(task, SETTINGS[task]["model"])}
        if task in ("translation", "captioning"):
            settings["decoding"] = {"min_length": 3, "max_length": 5}
        run = write_random_run(folder, settings, TEXTS, TEXTS, seed=2)
        self.task, self.predictor = task, heedful.load(run, device="cpu")
        self.request = REQUESTS.get(task, (TEXTS, TEXTS))[0][-1]
        self.options = self.predictor.parse_options(OPTIONS.get(task, {}))

    def explain(self, *edits):
        return self.predictor.explain(self.request, self.options, edits=edits)


@pytest.fixture(scope="module", params=TASKS)
def case(request, tmp_path_factory):
    return Case(request.param, tmp_path_factory.mktemp("explanations") / "run")


@pytest.fixture(scope="module")
def attending(case):
    if case.task in WITHOUT_ATTENTION:
        pytest.skip("no attention")
    return case


def test_explanation_without_edits_is_the_prediction_as_json(case):
    explanation = case.explain()
    (expected,) = case.predictor.predict([case.request], case.options)
    is_masked = case.task == "masked-language-modeling"  # which is read as it is
    assert is_masked or explanation.result.text == expected.text
    fields = json.loads(json.dumps(explanation.to_json()))
    names = {
        "result",
        "token_ids",
        "num_prompt_steps",
        "edits",
        "layers",
        "top",
        "checks",
        "experts",
    }
    assert set(fields) == names
    assert bool(explanation.layers) == (case.task not in WITHOUT_ATTENTION)
    assert bool(explanation.top) == (case.task not in WITHOUT_STEPS)
    for step in explanation.top:
        log_probs = [score.log_prob for score in step]
        assert log_probs == sorted(log_probs, reverse=True)
        assert sum(map(np.exp, log_probs)) <= 1 + 1e-5


def test_layers_that_come_with_the_prediction_have_effects(attending):
    explanation = attending.explain()
    for layer, checks in zip(explanation.layers, explanation.checks, strict=True):
        has_effects = layer.is_default and attending.task not in WITHOUT_STEPS
        assert (checks.effects is not None) == has_effects
        assert checks.max_hidden_weight == 0
        np.testing.assert_allclose(checks.row_sums, 1, rtol=1e-5)
        size = layer.weights.shape[-1]
        assert ((checks.effective_support >= 1 - 1e-5) & (checks.effective_support <= size)).all()


def test_rows_set_to_own_weights_change_nothing(attending):
    plain = attending.explain()
    edits = [
        AttentionEdit(layer=layer.path, step=layer.first_step + step, head=head, row=row.tolist())
        for layer in plain.layers
        for head, rows in enumerate(layer.weights)
        for step, row in enumerate(rows[:3])
    ]
    edited = attending.explain(*edits)
    assert edited.result.text == plain.result.text
    for layer, other in zip(plain.layers, edited.layers, strict=True):
        np.testing.assert_allclose(layer.weights, other.weights, atol=1e-5)
    for scores, others in zip(plain.top, edited.top, strict=True):
        expected = pytest.approx([score.log_prob for score in scores], abs=1e-4)
        assert [score.log_prob for score in others] == expected


def test_forced_cell_is_returned_as_forced_in_each_layer(attending):
    for layer in attending.explain().layers:
        edit = AttentionEdit(layer=layer.path, step=layer.first_step, set={0: 1})
        explanation = attending.explain(edit)
        (edited,) = (other for other in explanation.layers if other.path == layer.path)
        np.testing.assert_array_equal(edited.weights[:, 0, 0], 1)
        np.testing.assert_array_equal(edited.weights[:, 0, 1:], 0)
        assert explanation.edits == (edit,)


def test_removed_position_has_no_weight_in_any_layer(attending):
    edit = AttentionEdit(layer="source", scale={1: 0})
    for layer in attending.explain(edit).layers:
        if layer.kind != "decoder-self":
            np.testing.assert_array_equal(layer.weights[..., 1], 0)
            np.testing.assert_allclose(layer.weights.sum(-1), 1, rtol=1e-5)


def test_edit_of_a_model_without_attention_is_rejected(case):
    if case.task in WITHOUT_ATTENTION:
        with pytest.raises(ConfigError, match="this model has no attention"):
            case.explain(AttentionEdit(set={0: 1}))


def test_edit_changes_the_prediction_but_not_the_predictor(attending):
    before = attending.explain()
    edit = AttentionEdit(layer="source", alignment={"type": "fixed", "pattern": "last"})
    edited, after = attending.explain(edit), attending.explain()
    assert edited.result.to_json() != before.result.to_json() or edited.top != before.top
    assert after.result.to_json() == before.result.to_json()


@pytest.mark.parametrize("task", ["classification", "tagging"])
def test_members_of_an_ensemble_are_edited_by_name(task, tmp_path):
    settings = {**SETTINGS[task], "model": MODELS[task]}
    runs = [
        write_random_run(tmp_path / str(seed), settings, TEXTS, TEXTS, seed=seed) for seed in (1, 2)
    ]
    ensemble = heedful.load(runs[0], device="cpu", ensemble_with=runs[1:])
    plain = ensemble.explain(TEXTS[0])
    assert all(layer.path.startswith("member.0.") for layer in plain.layers)
    uniform = {"type": "fixed", "pattern": "uniform"}
    edited = ensemble.explain(
        TEXTS[0], edits=[AttentionEdit(layer="member.1.*", alignment=uniform)]
    )
    assert edited.top != plain.top
    for layer, other in zip(plain.layers, edited.layers, strict=True):
        np.testing.assert_allclose(layer.weights, other.weights, atol=1e-6)


@pytest.mark.parametrize("model", [SETTINGS["glimpses"]["model"], DRAW_WINDOW], ids=["ram", "draw"])
def test_forced_glimpse_is_where_it_was_forced_and_later_ones_are_new(model, tmp_path):
    settings = {**SETTINGS["glimpses"], "model": model}
    run = write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=1)
    classifier = heedful.load(run, device="cpu")
    image = REQUESTS["glimpses"][0][0]
    plain = classifier.explain(image).result
    options = classifier.parse_options({"locations": {"1": [0.5, -0.5]}})
    forced = classifier.explain(image, options).result
    top, left, height, width = forced.boxes[1, 0]
    np.testing.assert_allclose((top + height / 2, left + width / 2), (6, 2), rtol=1e-6)  # of 8
    np.testing.assert_array_equal(forced.boxes[0], plain.boxes[0])
    before, after = (result.step_probabilities for result in (plain, forced))
    np.testing.assert_array_equal(after[0], before[0])
    assert not np.isclose(after[1:], before[1:], atol=0).any(axis=1).all()
    np.testing.assert_array_equal(classifier.explain(image).result.boxes, plain.boxes)


def test_location_of_a_glimpse_that_is_not_taken_is_rejected(tmp_path):
    run = write_random_run(tmp_path / "run", SETTINGS["glimpses"], TEXTS, TEXTS, seed=1)
    classifier, image = heedful.load(run, device="cpu"), REQUESTS["glimpses"][0][0]
    with pytest.raises(ConfigError, match="the glimpses are 0 to 5"):
        classifier.explain(image, classifier.parse_options({"locations": {6: [0, 0]}}))
    with pytest.raises(ConfigError, match="locations"):
        classifier.parse_options({"locations": {0: [2, 0]}})


def test_edited_past_value_moves_the_forecast(tmp_path):
    settings = {**SETTINGS["forecasting"], "model": MODELS["forecasting"]}
    run = write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=1)
    forecaster, series = heedful.load(run, device="cpu"), REQUESTS["forecasting"][0][0]
    values = series.values.copy()
    values[-1] += 5
    plain = forecaster.explain(series).result
    moved = forecaster.explain(series._replace(values=values)).result
    assert not np.allclose(plain.mean, moved.mean)


def test_continuation_begins_with_the_tokens_that_are_forced(tmp_path):
    settings = {**SETTINGS["language-modeling"], "model": LANGUAGE_MODEL}
    run = write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=1)
    generator = heedful.load(run, device="cpu")
    first = generator.explain("a b", generator.parse_options({"max_new_tokens": 1}))
    second_best = next(score for score in first.top[-1][1:] if score.id > 3)
    options = {"max_new_tokens": 2, "prefix_tokens": [second_best.id], "temperature": 0}
    explanation = generator.explain("a b", generator.parse_options(options))
    num_prompt_tokens = explanation.result.num_prompt_tokens
    assert explanation.result.token_ids[num_prompt_tokens] == second_best.id
    assert len(explanation.result.token_ids) == num_prompt_tokens + 3
    with pytest.raises(ConfigError, match="prefix_tokens: must be ids from 3 to"):
        generator.explain("a b", generator.parse_options({"prefix_tokens": [999]}))


def test_sentences_of_a_hierarchical_classifier_are_rejected_by_name(tmp_path):
    words = {"type": "recurrent", "embedding_size": 6, "hidden_size": 6}
    encoder = {"type": "hierarchical", "words": words, "sentences": words}
    tokenizers = {
        "type": "separate",
        "source": {"type": "sentence-word"},
        "target": {"type": "label"},
    }
    model = {"type": "text-classifier", "encoder": encoder}
    settings = {"model": model, "tokenizers": tokenizers}
    run = write_random_run(tmp_path / "run", settings, TEXTS, TEXTS, seed=1)
    classifier = heedful.load(run, device="cpu")
    with pytest.raises(ConfigError, match=r"encoder\.pooling\.attention attends to blocks"):
        classifier.explain("a b", edits=[AttentionEdit(layer="encoder*", set={0: 1})])
