"""Predictions for dev examples during training."""

import json

import pytest
import torch
from rich.console import Console

from heedful.data.text.example_formats import LINES
from heedful.errors import ConfigError
from heedful.evaluation.registry import ALIGNMENT_METRICS, METRICS, compute_metrics
from heedful.experiment import load_data
from heedful.recipes import load_recipe
from heedful.runs import Run, load
from heedful.tasks.language_modeling.generator import TextGenerator
from heedful.tasks.task_data import VocabSizes
from heedful.tasks.translation.task import TASK as TRANSLATION
from heedful.tasks.translation.translator import Translator
from heedful.training.callbacks import LoggedSample
from tests.commands import write_recipe
from tests.language_modeling import write_text_recipe

CPU = torch.device("cpu")
EXPERTS = [
    "model.encoder.num_layers=2",
    "model.encoder.experts={num_experts: 4, intermediate_size: 8}",
]


class Setup:
    """A dev evaluator and what it was built from."""

    def __init__(self, recipe, data_module, model):
        self.recipe = recipe
        self.data_module = data_module
        self.model = model
        self.evaluator = recipe.task.evaluation.dev_evaluator(model, data_module, recipe, CPU)


@pytest.fixture
def untrained(tmp_path):
    """Build a dev evaluator of an untrained model."""

    def build(*overrides, write=write_recipe):
        recipe = load_recipe(str(write(tmp_path)), overrides)
        data_module = load_data(recipe, Run(tmp_path / "run"), Console(quiet=True))
        torch.manual_seed(3)
        sizes = VocabSizes.from_tokenizers(data_module.tokenizers)
        return Setup(recipe, data_module, recipe.task.build_model(recipe, sizes))

    return build


@pytest.fixture
def copying(trained):
    """A dev evaluator of a model that was trained to copy."""
    run = Run(trained)
    recipe = run.read_recipe()
    data_module = load_data(recipe, run, Console(quiet=True))
    return Setup(recipe, data_module, load(trained).model)


def raise_keyboard_interrupt(*_):
    raise KeyboardInterrupt


def masked_recipe(folder):
    return write_text_recipe(folder, "masked-language-model")


def transformer_recipe(folder):
    return write_text_recipe(folder, "transformer")


def test_scores_are_those_of_greedy_outputs(copying):
    pairs = copying.data_module.dev_examples
    translator = Translator(copying.model, copying.data_module.tokenizers, copying.recipe.decoding)
    sources = [pair.source for pair in pairs]
    outputs = [result.text for result in translator.translate(sources, beam_size=1)]
    names = ["exact-match", "bleu", "ter", "rouge-l", "wer", "token-accuracy"]
    references = [pair.target for pair in pairs]
    expected = [score.value for score in compute_metrics(outputs, references, names)]
    scores = copying.evaluator.compute_scores(names)
    assert list(scores.values()) == expected
    assert scores["exact-match"] > 50


def test_metrics_without_outputs_skipped(untrained):
    assert untrained().evaluator.compute_scores(["loss", "accuracy"]) == {}


def test_number_of_decoded_examples_is_limited(untrained):
    setup = untrained("training.max_eval_samples=3")
    references = [sample.reference for sample in setup.evaluator.sample_predictions(10)]
    assert references == [pair.target for pair in setup.data_module.dev_examples[:3]]


def test_samples_are_the_same_examples_with_attention(copying):
    samples = copying.evaluator.sample_predictions(3)
    assert samples == copying.evaluator.sample_predictions(3)
    pairs = copying.data_module.dev_examples[:3]
    sources = [sample.source[:-1] for sample in samples]
    assert sources == [pair.source.split() for pair in pairs]
    assert [sample.reference for sample in samples] == [pair.target for pair in pairs]
    for sample in samples:
        assert len(sample.attention) == len(sample.output)
        for row in sample.attention:
            assert len(row) == len(sample.source)
            assert sum(row) == pytest.approx(1, abs=1e-3)
            assert row == [round(weight, 4) for weight in row]


def test_samples_can_be_written_as_json(copying, untrained):
    for setup in (copying, untrained("training.num_logged_samples=1", write=write_text_recipe)):
        (sample,) = setup.evaluator.sample_predictions(1)
        restored = LoggedSample(**json.loads(json.dumps(sample._asdict())))
        names = ("attention", "copy_probs", "grid")
        lists = {name: list(getattr(sample, name)) for name in names}
        assert restored == sample._replace(**lists)


def test_model_without_attention_has_samples_without_weights(untrained):
    decoder = "{type: recurrent, embedding_size: 8, hidden_size: 8, wiring: {type: final-state}}"
    (sample,) = untrained(f"model.decoder={decoder}").evaluator.sample_predictions(1)
    assert sample.attention == ()


@pytest.mark.parametrize(
    ("overrides", "write"),
    [
        (["model.encoder.dropout=0.5", "model.decoder.dropout=0.5"], write_recipe),
        (["model.decoder.attention.alignment.type=sampled"], write_recipe),
        (EXPERTS, write_recipe),
        ([], write_text_recipe),
        ([], transformer_recipe),
        ([], masked_recipe),
    ],
    ids=["dropout", "hard attention", "experts", "language model", "transformer", "masked"],
)
def test_evaluation_does_not_change_model_or_random_state(untrained, overrides, write):
    setup = untrained(*overrides, write=write)
    model = setup.model.train()
    next(model.children()).eval()  # as a frozen module might be
    modes = [module.training for module in model.modules()]
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    rng_state = torch.get_rng_state()
    setup.evaluator.compute_scores(["bleu"] if write is write_recipe else [])
    setup.evaluator.sample_predictions(2)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), rng_state)
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(
        parameter.requires_grad and parameter.grad is None for parameter in model.parameters()
    )


def test_training_mode_is_restored_if_decoding_fails(untrained, monkeypatch):
    setup = untrained()
    setup.model.train()
    monkeypatch.setattr(setup.model, "step", raise_keyboard_interrupt)
    with pytest.raises(KeyboardInterrupt):
        setup.evaluator.sample_predictions(1)
    assert all(module.training for module in setup.model.modules())


def test_sources_that_are_too_long_not_decoded(untrained):
    setup = untrained("decoding.max_source_length=2")
    sources = [sample.source for sample in setup.evaluator.sample_predictions(100)]
    assert sources
    assert max(map(len, sources)) == 3  # with EOS


def test_language_model_continues_the_start_of_the_dev_text(untrained):
    setup = untrained(write=write_text_recipe)
    (sample,) = setup.evaluator.sample_predictions(1)
    prompt = "".join(sample.source[1:]).replace("\u21b5", "\n")
    tokenizer, lm_batching = setup.data_module.tokenizers.target, setup.recipe.data.lm_batching
    generator = TextGenerator(setup.model, tokenizer, lm_batching)
    assert prompt + sample.text == generator.generate(prompt, max_new_tokens=40, temperature=0)
    assert len(sample.output) == 40
    lines = setup.recipe.data.train.read()
    rows = LINES.choose_held_out(LINES.hash(lines), seed=0, location="text").rows
    held_out = [lines[row] for row in rows]
    assert "\n".join([*held_out, ""]).startswith(prompt + sample.reference)
    assert len(sample.reference) == 40
    assert sample.attention == ()


def test_prompts_of_a_language_model_are_distinct_line_starts(untrained):
    evaluator = untrained(write=write_text_recipe).evaluator
    prompts = {tuple(sample.source) for sample in evaluator.sample_predictions(3)}
    assert all(prompt[0] == "\u21b5" for prompt in prompts)
    assert len(prompts) == 3
    assert len(evaluator.sample_predictions(1000)) < 1000


def test_masked_language_model_has_no_samples(untrained):
    assert untrained(write=masked_recipe).evaluator.sample_predictions(3) == []


def test_metrics_of_translation_are_all_but_alignment_error_rate():
    assert set(TRANSLATION.evaluation.metrics) == {"loss", "accuracy", *METRICS} - {
        *ALIGNMENT_METRICS
    }
    higher = {
        name for name, spec in TRANSLATION.evaluation.metrics.items() if spec.higher_is_better
    }
    assert {"accuracy", "bleu"} <= higher
    assert not higher & {"loss", "wer", "ter"}


@pytest.mark.parametrize("name", ["bleu", "wer"])
def test_metric_of_outputs_raises_for_running_text(untrained, name):
    with pytest.raises(ConfigError) as caught:
        untrained(f"training.metric_for_best_model={name}", write=write_text_recipe)
    assert caught.value.location == "training.metric_for_best_model"
    assert caught.value.hint == "choose from: accuracy, loss"


def test_metric_that_cannot_read_the_references_raises_before_training(untrained):
    with pytest.raises(ConfigError) as caught:
        untrained("training.metric_for_best_model=span-f1")
    assert caught.value.location == "training.metric_for_best_model"
    assert caught.value.message.startswith("span-f1 cannot read the dev references: ")
    assert caught.value.hint == (
        "set training.metric_for_best_model to a metric of text, such as bleu or exact-match"
    )


def test_alignment_error_rate_is_no_metric_of_outputs(untrained):
    with pytest.raises(ConfigError, match=r"training\.metric_for_best_model: .*aer"):
        untrained("training.metric_for_best_model=aer")


@pytest.mark.parametrize("side", ["source", "target"])
def test_metric_of_outputs_raises_if_nothing_can_be_decoded(untrained, side):
    setup = untrained()
    setup.data_module.dev_examples = [
        pair._replace(**{side: " "}) for pair in setup.data_module.dev_examples
    ]
    training = setup.recipe.training.model_copy(update={"metric_for_best_model": "chrf"})
    recipe = setup.recipe.model_copy(update={"training": training})
    with pytest.raises(ConfigError) as caught:
        Setup(recipe, setup.data_module, setup.model)
    assert str(caught.value) == (
        "training.metric_for_best_model: chrf needs outputs, but no dev source is short enough to "
        "be decoded\n  raise decoding.max_source_length, or set training.metric_for_best_model to "
        "loss or accuracy"
    )


def test_nan_parameters_return_no_samples_and_a_score_of_zero(untrained):
    setup = untrained("training.metric_for_best_model=bleu")
    with torch.no_grad():
        for parameter in setup.model.parameters():
            parameter.fill_(torch.nan)
    assert setup.evaluator.sample_predictions(2) == []
    assert setup.evaluator.compute_scores(["bleu"]) == {"bleu": 0.0}
