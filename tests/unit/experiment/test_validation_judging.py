"""Judging: the model writes by itself, and nothing of that is left behind."""

import json
from typing import get_args

import pytest
import torch
from rich.console import Console

from heedful.data.examples import LINES
from heedful.errors import ConfigError
from heedful.evaluation.base import compute_score
from heedful.evaluation.registry import METRICS, compute_metrics
from heedful.experiment import load_data
from heedful.experiment.validation import METRIC_DIRECTIONS, OutputEvaluator, to_minimize
from heedful.recipes import load_recipe
from heedful.runs import Run, load
from heedful.tasks.language_modeling.generator import TextGenerator
from heedful.tasks.translation.translator import Translator
from heedful.training.callbacks import LoggedSample
from heedful.training.config import MetricName
from tests.commands import write_recipe
from tests.running_text import write_text_recipe

CPU = torch.device("cpu")
EXPERTS = [
    "model.encoder.num_layers=2",
    "model.encoder.experts={num_experts: 4, intermediate_size: 8}",
]


@pytest.fixture
def judge(tmp_path):
    """Make a judge of a model that has learned nothing."""

    def make(*overrides, write=write_recipe, folder="run"):
        recipe = load_recipe(str(write(tmp_path)), overrides)
        corpora = load_data(recipe, Run(tmp_path / folder), Console(quiet=True))
        torch.manual_seed(3)
        text = corpora.tokenizers
        model = recipe.model.build(
            source_vocab_size=len(text.source), target_vocab_size=len(text.target)
        )
        return OutputEvaluator(model, corpora, recipe, CPU)

    return make


@pytest.fixture
def learned(trained):
    """A judge of a model that has learned to copy."""
    run = Run(trained)
    recipe = run.read_recipe()
    corpora = load_data(recipe, run, Console(quiet=True))
    return OutputEvaluator(load(trained).model, corpora, recipe, CPU)


def interrupted(*_):
    raise KeyboardInterrupt


def masked_recipe(folder):
    return write_text_recipe(folder, "masked-language-model")


def transformer_recipe(folder):
    return write_text_recipe(folder, "transformer")


def test_scores_are_those_of_greedy_outputs(learned):
    pairs = learned.data_module.dev_pairs
    translator = Translator(learned.model, learned.data_module.tokenizers, learned.recipe.decoding)
    outputs = [
        each.text for each in translator.translate([pair.source for pair in pairs], beam_size=1)
    ]
    names = ["exact-match", "bleu", "ter", "rouge-l", "wer", "token-accuracy"]
    references = [pair.target for pair in pairs]
    expected = [metric.value for metric in compute_metrics(outputs, references, names)]
    scores = learned.compute_scores(names)
    assert list(scores.values()) == expected
    assert scores["exact-match"] > 50


def test_what_needs_no_outputs_is_left_to_others(judge):
    assert judge().compute_scores(["loss", "accuracy"]) == {}


def test_only_so_many_texts_are_judged(judge):
    few = judge("training.max_eval_samples=3")
    asked = [each.reference for each in few.sample_outputs(10)]
    assert asked == [pair.target for pair in few.data_module.dev_pairs[:3]]


def test_samples_show_the_same_texts_every_time_and_where_the_model_looked(learned):
    samples = learned.sample_outputs(3)
    assert samples == learned.sample_outputs(3)
    pairs = learned.data_module.dev_pairs[:3]
    assert [each.source for each in samples] == [[*p.source.split(), "(end)"] for p in pairs]
    assert [each.reference for each in samples] == [pair.target for pair in pairs]
    for sample in samples:
        assert len(sample.attention) == len(sample.output)
        for row in sample.attention:
            assert len(row) == len(sample.source)
            assert sum(row) == pytest.approx(1, abs=1e-3)
            assert row == [round(share, 4) for share in row]


def test_samples_can_be_written_as_json(learned, judge):
    for judged in (learned, judge("training.num_logged_samples=1", write=write_text_recipe)):
        (sample,) = judged.sample_outputs(1)
        read = LoggedSample(**json.loads(json.dumps(sample._asdict())))
        assert read == sample._replace(attention=list(sample.attention))


def test_a_model_that_does_not_look_gives_no_weights(judge):
    decoder = "{type: recurrent, embedding_size: 8, hidden_size: 8, wiring: {type: final-state}}"
    (sample,) = judge(f"model.decoder={decoder}").sample_outputs(1)
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
def test_judging_leaves_no_trace(judge, overrides, write):
    """Modes, weights and random numbers stay, so what is learned next stays what it was."""
    judged = judge(*overrides, write=write)
    model = judged.model.train()
    next(model.children()).eval()  # as a frozen part might be
    modes = [module.training for module in model.modules()]
    state = {name: each.clone() for name, each in model.state_dict().items()}
    random = torch.get_rng_state()
    judged.compute_scores(["bleu"] if write is write_recipe else [])
    judged.sample_outputs(2)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(state[name], each) for name, each in model.state_dict().items())
    assert all(weight.requires_grad and weight.grad is None for weight in model.parameters())


def test_the_modes_are_put_back_even_if_decoding_fails(judge, monkeypatch):
    judged = judge()
    judged.model.train()
    monkeypatch.setattr(judged.model, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        judged.sample_outputs(1)
    assert all(module.training for module in judged.model.modules())


def test_a_held_out_text_too_long_to_decode_is_not_asked_about(judge):
    sources = [each.source for each in judge("decoding.max_source_length=2").sample_outputs(100)]
    assert sources
    assert max(map(len, sources)) == 3  # with the end


def test_a_language_model_goes_on_from_the_beginning_of_the_held_out_text(judge):
    judged = judge(write=write_text_recipe)
    (sample,) = judged.sample_outputs(1)
    prompt = "".join(sample.source[1:]).replace("\u21b5", "\n")
    streams = judged.recipe.data.lm_batching
    writer = TextGenerator(judged.model, judged.data_module.tokenizers.target, streams)
    assert prompt + sample.text == writer.generate(prompt, max_new_tokens=40, temperature=0)
    assert len(sample.output) == 40
    lines = judged.recipe.data.train.read()
    held_out = [lines[row] for row in LINES.choose_held_out(len(lines), seed=0, location="text")]
    assert "\n".join([*held_out, ""]).startswith(prompt + sample.reference)
    assert len(sample.reference) == 40
    assert sample.attention == ()


def test_no_more_beginnings_are_shown_than_there_are_lines(judge):
    judged = judge(write=write_text_recipe)
    beginnings = {tuple(each.source) for each in judged.sample_outputs(3)}
    assert all(beginning[0] == "\u21b5" for beginning in beginnings)
    assert len(beginnings) == 3
    assert len(judged.sample_outputs(1000)) < 1000


def test_a_masked_language_model_has_nothing_to_show(judge):
    assert judge(write=masked_recipe).sample_outputs(3) == []


def test_every_metric_that_can_be_set_has_a_direction():
    assert set(METRIC_DIRECTIONS) == set(get_args(MetricName))
    assert set(METRIC_DIRECTIONS) == {"loss", "accuracy", *METRICS} - {"aer"}
    assert to_minimize("loss", 2.0) < to_minimize("loss", 3.0)
    assert to_minimize("bleu", 30.0) < to_minimize("bleu", 20.0)
    assert to_minimize("wer", 20.0) < to_minimize("wer", 30.0)


@pytest.mark.parametrize("name", sorted(METRICS.keys() - {"aer"}))
def test_the_better_of_two_outputs_costs_less_by_every_metric(name):
    is_of_tags = name.startswith("span")
    reference = "B-x I-x O O B-y" if is_of_tags else "a b c d e"
    worse = "B-x O O O B-x" if is_of_tags else "b d x y"
    costs = [
        to_minimize(name, compute_score(METRICS[name], [output], [reference]).value)
        for output in (reference, worse)
    ]
    assert costs[0] < costs[1]


@pytest.mark.parametrize("name", ["bleu", "wer"])
def test_a_metric_of_outputs_is_refused_where_there_are_none(judge, name):
    with pytest.raises(ConfigError) as caught:
        judge(f"training.metric_for_best_model={name}", write=write_text_recipe)
    assert str(caught.value) == (
        f"training.metric_for_best_model: {name} compares outputs with references, and running text has none\n"
        "  set training.metric_for_best_model to loss or accuracy"
    )


def test_a_metric_that_cannot_read_the_references_is_refused_before_training(judge):
    with pytest.raises(ConfigError) as caught:
        judge("training.metric_for_best_model=span-f1")
    assert str(caught.value).startswith(
        "training.metric_for_best_model: span-f1 cannot read the held-out texts: "
    )
    assert str(caught.value).endswith(
        "is no tag\n  set training.metric_for_best_model to one that measures text, such as bleu or exact-match"
    )


def test_links_are_not_what_a_model_writes(judge):
    with pytest.raises(ConfigError, match=r"training\.metric: .*aer"):
        judge("training.metric_for_best_model=aer")


def test_a_metric_of_outputs_is_refused_where_nothing_can_be_decoded(judge, monkeypatch):
    judged = judge()
    for each in ("source", "target"):
        pairs = [pair._replace(**{each: " "}) for pair in judged.data_module.dev_pairs]
        monkeypatch.setattr(judged.data_module, "dev_pairs", pairs)
        recipe = judged.recipe.model_copy(
            update={
                "training": judged.recipe.training.model_copy(
                    update={"metric_for_best_model": "chrf"}
                )
            }
        )
        with pytest.raises(ConfigError) as caught:
            OutputEvaluator(judged.model, judged.data_module, recipe, CPU)
        assert str(caught.value) == (
            "training.metric_for_best_model: chrf needs outputs, and no held-out text is short enough to be "
            "decoded\n"
            "  raise decoding.max_source_length, or set training.metric_for_best_model to loss or accuracy"
        )


def test_weights_that_are_no_numbers_say_nothing_and_stop_nobody(judge):
    asked = judge("training.metric_for_best_model=bleu")
    with torch.no_grad():
        for weight in asked.model.parameters():
            weight.fill_(torch.nan)
    assert asked.sample_outputs(2) == []
    assert asked.compute_scores(["bleu"]) == {"bleu": 0.0}
