"""Text classification: model, metrics, predictor, objective and commands."""

import json
import math

import pytest
import torch

import heedful as package
from heedful.data.text.batching import Batch, collate_sources
from heedful.evaluation.confusion import confusion_sums, finalize_confusion
from heedful.inspection.attention_trace import trace_attention
from heedful.tasks.classification.model import TextClassifierConfig
from heedful.tasks.classification.predictor import METRICS
from heedful.tasks.classification.task import TASK, LabelCrossEntropy
from tests.commands import heedful
from tests.labeled_texts import LABELS, labeled_lines, write_labeled_recipe
from tests.shape_checking import unchecked

TEXTS = [[5, 6, 7, 8], [9], [5, 9]]


def build(pooling="attention", **settings):
    torch.manual_seed(0)
    encoder = {"type": "recurrent", "embedding_size": 8, "hidden_size": 8}
    config = TextClassifierConfig(encoder=encoder, pooling=pooling, **settings)
    return config.build(source_vocab_size=12, target_vocab_size=4 + 3).eval()


def batch_of(labels):
    sources = collate_sources(TEXTS[: len(labels)])
    targets = torch.tensor([[4 + label, 3] for label in labels])
    return Batch(sources, targets, targets)


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_padding_does_not_change_log_probs(pooling):
    model = build(pooling)
    together, _ = model.classify(collate_sources(TEXTS))
    alone = [model.classify(collate_sources([text]))[0][0] for text in TEXTS]
    torch.testing.assert_close(together, torch.stack(alone))
    torch.testing.assert_close(together.exp().sum(dim=-1), torch.ones(3))


def test_attention_trace_records_the_pooling_weights():
    model = build()
    with trace_attention(model) as records:
        model.classify(collate_sources(TEXTS))
    (record,) = records
    assert record.module_path == "pooling.attention"
    assert record.weights.shape == (3, 1, 1, 5)
    torch.testing.assert_close(record.weights.sum(dim=-1), torch.ones(3, 1, 1))


def test_word_dropout_replaces_words_in_training_only():
    model = build(word_dropout=0.9)
    before, _ = model.classify(collate_sources(TEXTS))
    assert torch.equal(before, model.classify(collate_sources(TEXTS))[0])
    model.train()
    tokens = collate_sources(TEXTS).tokens
    dropped = model._drop_words(tokens)
    assert set(dropped[dropped != tokens].tolist()) == {1}
    assert torch.equal(dropped == 3, tokens == 3)


def test_objective_is_cross_entropy_summed_over_texts():
    model, batch = build(), batch_of([2, 0, 1])
    log_probs, _ = model.classify(batch.sources)
    loss = LabelCrossEntropy()(model, batch, 1, model).main_loss
    torch.testing.assert_close(loss, -(log_probs[0, 2] + log_probs[1, 0] + log_probs[2, 1]))
    smoothed = LabelCrossEntropy(label_smoothing=0.1)(model, batch, 1, model).main_loss
    torch.testing.assert_close(smoothed, 0.9 * loss - 0.1 * log_probs.mean(dim=-1).sum())
    assert LabelCrossEntropy().normalizer(batch) == 3


def test_metric_sums_add_up_over_batches_and_unknown_labels_are_errors():
    model = build()
    log_probs, _ = model.classify(batch_of([0, 0, 0]).sources)
    predicted = log_probs.argmax(dim=-1).tolist()
    right, unknown = batch_of(predicted), batch_of([*predicted[:2], -3])
    with torch.no_grad():
        sums = TASK.evaluation.batch_sums(model, right) + TASK.evaluation.batch_sums(model, unknown)
    metrics = TASK.evaluation.finalize(sums)
    references, outputs = [*predicted, *predicted[:2], -3], predicted * 2
    assert metrics["accuracy"] == pytest.approx(5 / 6)
    assert 100 * metrics["macro-f1"] == pytest.approx(evaluated_f1(references, outputs))
    assert "accuracy 83.3 %, macro-F1 " in TASK.evaluation.format(metrics)


def evaluated_f1(references, outputs):
    metric, texts = METRICS["macro-f1"], [(str(label),) for label in references]
    sums = metric.sentence_statistics([str(label) for label in outputs], texts).sum(axis=0)
    return metric.compute(sums)


@pytest.mark.parametrize("unknown", [-3, 0, 1, 2])
def test_validation_has_the_macro_f1_of_evaluate(unknown):
    generator = torch.Generator().manual_seed(unknown)
    labels, outputs = torch.randint(3, (2, 40), generator=generator)
    references = torch.where(labels == 2, unknown, labels)  # the model may predict 2 nevertheless
    loss, size = torch.zeros(()), torch.tensor(40)
    metrics = finalize_confusion(confusion_sums(loss, size, outputs, references, 3))
    expected = evaluated_f1(references.tolist(), outputs.tolist())
    assert 100 * metrics["macro-f1"] == pytest.approx(expected)


def test_loss_without_known_labels_is_nan():
    sums = TASK.evaluation.batch_sums(build(), batch_of([-3, -3]))
    metrics = TASK.evaluation.finalize(sums)
    assert math.isnan(metrics["loss"])
    assert metrics["accuracy"] == 0


@pytest.mark.parametrize("num_unknown", [10, 20])
def test_dev_labels_that_training_lacks_reported(num_unknown, call, tmp_path):
    recipe, labeled = write_labeled_recipe(tmp_path, steps=1, every=1)
    dev = labeled_lines(20, seed=1)
    dev[:num_unknown] = [f"fish\t{line.partition(chr(9))[2]}" for line in dev[:num_unknown]]
    (tmp_path / "dev.tsv").write_text("\n".join(dev))
    files = ("--labeled", labeled, "--dev-labeled", tmp_path / "dev.tsv")
    ended = call("train", recipe, *files, "--run", tmp_path / "run")
    if num_unknown < len(dev):
        line = "10 of 20 labels not in the training data, errors that the loss leaves out: 'fish'"
        assert f"dev: {line}" in ended.err
    else:
        assert ended.code == 2
        assert ended.err.splitlines()[-2:] == [
            "heedful: data.dev: the training data has none of these labels: 'fish'",
            "  give data with labels such as 'animal', 'metal of old', 'plant'",
        ]


def test_macro_f1_equals_the_mean_over_labels():
    references = [("a",), ("a",), ("b",), ("c",)]
    outputs = ["a", "b", "b", "a"]
    statistics = METRICS["macro-f1"].sentence_statistics(outputs, references)
    # a: tp 1, fp 1, fn 1; b: tp 1, fp 1; c: fn 1.
    expected = 100 * (2 / 4 + 2 / 3 + 0) / 3
    assert METRICS["macro-f1"].compute(statistics.sum(axis=0)) == pytest.approx(expected)
    assert METRICS["macro-f1"].signature(references) == "labels:3|nrefs:1"


def test_label_metrics_ignore_space_around_labels():
    for metric in METRICS.values():
        statistics = metric.sentence_statistics(["a", "b"], [("a ",), (" b",)])
        assert metric.compute(statistics.sum(axis=0)) == 100


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("labeled")
    recipe, labeled = write_labeled_recipe(folder)
    setting = {"type": "tsv", "path": str(labeled), "source_column": 2, "target_column": 1}
    with unchecked():
        package.train(str(recipe), folder / "run", settings=[f"data.train={json.dumps(setting)}"])
    return folder / "run"


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *words, stdin="": heedful(capsys, monkeypatch, *words, stdin=stdin)


def test_labeled_file_with_three_columns_raises(tmp_path, call):
    recipe, _ = write_labeled_recipe(tmp_path)
    (tmp_path / "labeled.tsv").write_text("animal\t17\tthe old cat\n" * 20)
    ended = call("train", recipe, "--labeled", tmp_path / "labeled.tsv", "--run", tmp_path / "run")
    assert ended.code == 2
    assert "labeled.tsv:1: 3 tab-separated columns, but 2 are expected" in ended.err


def test_classify_prints_one_label_per_line(run, call, tmp_path):
    (tmp_path / "texts").write_text("the old cat\n\nthis iron\n")
    ended = call("classify", run, tmp_path / "texts")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert [lines[0], lines[2]] == ["animal", "metal of old"]
    assert lines[1] in LABELS.values()


@pytest.mark.parametrize(
    ("name", "table", "options"),
    [
        ("in.tsv", "x\tthe old cat\ny\tthis iron\n", []),
        ("in.csv", 'text;x\nthe old cat;1\n"this iron";2\n', ["--delimiter", ";"]),
    ],
)
def test_table_has_one_output_per_record(run, call, tmp_path, name, table, options):
    (tmp_path / name).write_bytes(table.encode("utf-16"))
    ended = call("classify", run, tmp_path / name, "--encoding", "utf-16", *options)
    assert ended.out.splitlines() == ["animal", "metal of old"], ended.err


def test_classify_prints_probabilities_and_weights_as_json(run, call):
    (line,) = call("classify", run, "--json", stdin="one big rose\n").out.splitlines()
    result = json.loads(line)
    assert result["label"] == "plant" == next(iter(result["probabilities"]))
    assert sum(result["probabilities"].values()) == pytest.approx(1, abs=1e-5)
    assert result["source_tokens"] == ["one", "big", "rose", "(end)"]
    assert sum(result["weights"]) == pytest.approx(1, abs=1e-5)


def test_evaluate_prints_scores_and_a_table_of_labels(run, call, tmp_path):
    (tmp_path / "test.tsv").write_text("\n".join(labeled_lines(40, seed=1)) + "\n")
    ended = call("evaluate", run, tmp_path / "test.tsv", "--confidence")
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[1].split()[:2] == ["accuracy", "100.00"]
    assert lines[2].split()[:2] == ["macro-F1", "100.00"]
    assert lines[5].split() == ["label", "texts", "precision", "recall", "F1"]
    assert lines[6].split() == ["animal", lines[6].split()[1], "100.00", "100.00", "100.0"]


def test_evaluate_names_labels_that_training_lacks(run, call, tmp_path):
    lines = [f"fish\t{line.partition(chr(9))[2]}" for line in labeled_lines(3, seed=1)]
    (tmp_path / "test.tsv").write_text("\n".join([*lines, *labeled_lines(2, seed=2)]) + "\n")
    ended = call("evaluate", run, tmp_path / "test.tsv")
    line = "3 of 5 labels not in the training data, errors that the loss leaves out: 'fish'"
    assert ended.out.splitlines()[-1] == line


def test_show_draws_the_weights_of_a_text(run, call):
    ended = call("show", run, "the old cat")
    assert ended.code == 0, ended.err
    assert "animal" in ended.out
    assert "cat" in ended.out


def test_compare_scores_classifiers(run, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "test.tsv").write_text("\n".join(labeled_lines(10, seed=1)) + "\n")
    ended = call("compare", run, "--labeled", "test.tsv", "--device", "cpu")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines()[0].split()[:3] == ["system", "accuracy", "macro-F1"]


def test_samples_have_attention_over_the_text(run):
    (line, *_) = (run / "samples.jsonl").read_text().splitlines()
    sample = json.loads(line)
    assert sample["output"] == [sample["text"]]
    assert len(sample["attention"][0]) == len(sample["source"])


@pytest.mark.parametrize("pooling", ["attention", "mean", "max"])
def test_bag_of_words_ignores_the_order_of_words(pooling):
    config = TextClassifierConfig(encoder={"type": "bag-of-words"}, pooling=pooling)
    model = config.build(source_vocab_size=12, target_vocab_size=4 + 3).double().eval()
    texts = [[5, 6, 7, 8, 6], [9, 11, 10]]
    permuted = [[6, 8, 5, 6, 7], [10, 9, 11]]
    before, after = (model.classify(collate_sources(ids))[0] for ids in (texts, permuted))
    torch.testing.assert_close(after, before)
    counts_differ, _ = model.classify(collate_sources([[5, 6, 7, 8, 5], [9, 11]]))
    if pooling != "max":
        assert not torch.allclose(counts_differ, before)


def test_other_encoders_notice_the_order_of_words():
    before, after = (build().classify(collate_sources([ids]))[0] for ids in ([5, 6, 7], [7, 6, 5]))
    assert not torch.allclose(after, before)
