"""Sequence labeling: model, objective, metrics, predictor and commands."""

import json

import numpy as np
import pytest
import torch

import heedful as package
from heedful.data.text.batching import collate_pairs
from heedful.errors import ConfigError
from heedful.tasks.tagging.model import SequenceTaggerConfig
from heedful.tasks.tagging.task import TASK, TagLikelihood, count_spans
from tests.commands import heedful
from tests.shape_checking import unchecked
from tests.tagged_words import (
    TRANSFORMER,
    conll_text,
    tagged_sentences,
    write_tagging_recipe,
)

VOCAB_SIZE, NUM_LABELS = 12, 3
# A word is an id below the size of the vocabulary; the ids after it are its characters.
SENTENCES = [[5, 77, 78, 6, 79, 7, 80], [9, 90, 91, 92, 93], [5, 9, 77]]
TAGS = [[4, 5, 6], [6], [4, 4]]
ENCODERS = {
    "recurrent": {"type": "recurrent", "embedding_size": 8, "hidden_size": 8},
    "transformer": {"type": "transformer", "hidden_size": 8, "num_layers": 1},
    "convolutional": {"type": "convolutional", "embedding_size": 8},
}


def build(encoder="recurrent", characters="convolution", head="crf", **settings):
    torch.manual_seed(0)
    config = SequenceTaggerConfig(
        encoder=ENCODERS[encoder], characters=characters, output_head=head, **settings
    )
    model = config.build(source_vocab_size=VOCAB_SIZE, target_vocab_size=4 + NUM_LABELS).eval()
    for parameter in model.head.parameters():
        torch.nn.init.normal_(parameter)
    return model


def batch_of(*rows):
    return collate_pairs([(SENTENCES[row], TAGS[row]) for row in rows])


CONCATENATED = {"type": "lstm", "hidden_size": 4, "combine": "concat"}


@pytest.mark.parametrize("characters", [None, "convolution", "lstm", CONCATENATED])
@pytest.mark.parametrize("encoder", ENCODERS)
def test_log_probs_do_not_depend_on_other_sentences(encoder, characters):
    model = build(encoder, characters)
    alone = [model(batch_of(row)).log_probs for row in range(3)]
    torch.testing.assert_close(model(batch_of(0, 1, 2)).log_probs, torch.cat(alone))


def test_concatenated_characters_are_the_last_part_of_the_embedding():
    embedding = build(characters=CONCATENATED).encoder.embedding
    size = embedding.embedding_size
    words = torch.tensor([[[5, 1, 2, 3], [6, 4, 0, 0]]])  # ids, and characters counted from 1
    vectors = embedding(words)
    assert vectors.shape == (1, 2, size)
    torch.testing.assert_close(vectors[..., : size - 4], embedding.embedding(words[..., 0]))
    features = embedding.character_encoder(words[..., 1:])
    torch.testing.assert_close(vectors[..., size - 4 :], features)


def test_concatenated_characters_leave_room_for_words():
    with pytest.raises(ConfigError) as caught:
        build(characters=CONCATENATED | {"hidden_size": 64})
    assert caught.value.location == "encoder.embedding_size"
    assert caught.value.message.startswith("must exceed the 64 features of characters, but is ")


@pytest.mark.parametrize("characters", ["convolution", "lstm", CONCATENATED])
def test_words_with_the_same_id_differ_by_characters(characters):
    model = build(characters=characters)
    one, other = (
        model.score_tags(collate_pairs([([5, *spelling], [4])]).sources, 2).emissions
        for spelling in ([77], [78])
    )
    assert not torch.equal(one, other)
    without = build(characters=None)
    one, other = (
        without.score_tags(collate_pairs([([5, *spelling], [4])]).sources, 2).emissions
        for spelling in ([77], [78])
    )
    assert torch.equal(one, other)


@pytest.mark.parametrize("head", ["softmax", "crf"])
def test_probabilities_of_all_tags_of_a_sentence_sum_to_one(head):
    model = build(head=head)
    pairs = [(SENTENCES[2], [4 + a, 4 + b]) for a in range(3) for b in range(3)]
    total = model(collate_pairs(pairs)).log_probs.exp().sum()
    torch.testing.assert_close(total, torch.ones(()))


def test_word_dropout_keeps_characters():
    model = build(word_dropout=0.9).train()
    tokens, _ = model._split_words(batch_of(0, 1, 2).sources, 4)
    dropped = model._drop_words(tokens)
    assert torch.equal(dropped[..., 1:], tokens[..., 1:])
    assert set(dropped[dropped != tokens].tolist()) == {1}
    assert torch.equal(dropped == 3, tokens == 3)


def test_objective_is_divided_by_the_number_of_words():
    model, batch = build(), batch_of(0, 1, 2)
    loss = TagLikelihood()(model, batch, 1, model).main_loss
    torch.testing.assert_close(loss, -model(batch).log_probs.sum())
    assert TagLikelihood().normalizer(batch) == 6


def test_metric_sums_add_up_and_unknown_tags_raise():
    model = build()
    with torch.no_grad():
        whole = TASK.evaluation.batch_sums(model, batch_of(0, 1, 2))
        parts = sum(TASK.evaluation.batch_sums(model, batch_of(row)) for row in range(3))
        torch.testing.assert_close(whole, parts, rtol=1e-6, atol=1e-6)
        emissions, mask, _ = model.score_tags(batch_of(2).sources, 3)
        first, second = model.head.decode(emissions, mask)[0, :2].tolist()
        right = collate_pairs([(SENTENCES[2], [4 + first, 4 + second])])
        unknown = collate_pairs([(SENTENCES[2], [4 + first, 1])])
        sums = TASK.evaluation.batch_sums(model, right) + TASK.evaluation.batch_sums(model, unknown)
        alone = TASK.evaluation.finalize(TASK.evaluation.batch_sums(model, right))
    metrics = TASK.evaluation.finalize(sums)
    assert metrics["accuracy"] == pytest.approx(3 / 4)
    assert metrics["loss"] == pytest.approx(alone["loss"])  # of the words it was summed over
    assert TASK.evaluation.format({**metrics, "span-f1": 50.0}).endswith("span-f1 50.00")


def test_spans_counted_by_type():
    references = ["B-X I-X O S-Y", "B-X O"]
    predicted = ["B-X I-X O B-X", "O O"]
    assert list(count_spans(references, predicted)) == [
        ("X", 1, 1, 1),
        ("Y", 0, 0, 1),
        ("all", 1, 1, 2),
    ]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    with unchecked():
        for name, settings in {
            "crf": {"scheme": "bio"},
            "transformer": {"encoder": TRANSFORMER, "head": "softmax", "metric": "accuracy"},
        }.items():
            recipe, conll = write_tagging_recipe(folder / name, **settings)
            package.train(str(recipe), folder / name / "run", conll=conll)
    return {name: folder / name / "run" for name in ("crf", "transformer")}


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *words, stdin="": heedful(capsys, monkeypatch, *words, stdin=stdin)


def test_tag_prints_one_line_of_tags_per_sentence(runs, call, tmp_path):
    (tmp_path / "text").write_text("the Dr Anna sees a cat\n\nDr Bruno\n")
    ended = call("tag", runs["crf"], tmp_path / "text")
    assert ended.code == 0, ended.err
    assert ended.out.splitlines() == ["O B-PER I-PER O O O", "", "B-PER I-PER"]


@pytest.mark.parametrize("name", ["in.tsv", "in.csv", "in.conll"])
def test_table_has_one_output_per_record(runs, call, tmp_path, name):
    rows = "text\nDr Anna\nthe cat\n" if name != "in.conll" else "Dr\nAnna\n\nthe\ncat\n"
    (tmp_path / name).write_bytes(rows.encode("utf-16"))
    ended = call("tag", runs["crf"], tmp_path / name, "--encoding", "utf-16", "--json")
    assert [json.loads(line)["tags"] for line in ended.out.splitlines()] == [
        ["B-PER", "I-PER"],
        ["O", "O"],
    ]


def test_raw_text_is_split_into_words(runs, call):
    ended = call(
        "tag", runs["crf"], "--input-format", "raw", "--conll", stdin="Dr Anna, the cat.\n"
    )
    assert [line.split("\t")[0] for line in ended.out.splitlines()] == [
        *("Dr", "Anna", ",", "the", "cat", ".", "")
    ]


def test_conll_file_is_printed_with_new_tags(runs, call, tmp_path):
    rows = "# id\n1\tDr\t_\tX\t_\t_\t_\t_\t_\t_\n1-2\tDrAnna\t_\t_\t_\t_\t_\t_\t_\t_\n"
    (tmp_path / "a.conllu").write_text(rows + "2\tAnna\t_\tX\t_\t_\t_\t_\t_\t_\n\n")
    ended = call("tag", runs["crf"], tmp_path / "a.conllu", "-o", tmp_path / "out.conllu")
    assert ended.code == 0, ended.err
    expected = (tmp_path / "a.conllu").read_text()
    expected = expected.replace("Dr\t_\tX", "Dr\t_\tB-PER").replace("Anna\t_\tX", "Anna\t_\tI-PER")
    assert (tmp_path / "out.conllu").read_text() == expected
    ended = call("tag", runs["crf"], tmp_path / "a.conllu", "--target-column", "xpos")
    assert ended.out.splitlines()[1] == "1\tDr\t_\tX\tB-PER\t_\t_\t_\t_\t_"


def test_json_has_probabilities_and_spans(runs, call):
    (line,) = call("tag", runs["crf"], "--json", stdin="the Dr Anna\n").out.splitlines()
    result = json.loads(line)
    assert result["tags"] == ["O", "B-PER", "I-PER"]
    assert result["spans"] == [{"first": 1, "last": 2, "label": "PER", "text": "Dr Anna"}]
    for probabilities, tag in zip(result["probabilities"], result["tags"], strict=True):
        assert sum(probabilities.values()) == pytest.approx(1, abs=1e-5)
        assert max(probabilities, key=probabilities.get) == tag


def test_ensemble_has_the_mean_of_probabilities(runs):
    sentence = "a Dr Dario and the cat"
    one, other = (package.load(run).tag(sentence) for run in runs.values())
    both = package.load(runs["crf"], ensemble_with=[runs["transformer"]]).tag(sentence)
    order = [other.labels.index(label) for label in one.labels]
    mean = (one.probabilities + other.probabilities[:, order]) / 2
    np.testing.assert_allclose(both.probabilities, mean, atol=1e-6)
    assert both.tags == [one.labels[index] for index in mean.argmax(axis=1)]


def test_evaluate_prints_scores_and_tables(runs, call, tmp_path):
    text = conll_text(tagged_sentences(30, seed=1)) + "\nAnna\tB-GOD\n"
    (tmp_path / "test.conll").write_text(text)
    page = tmp_path / "page.html"
    ended = call("evaluate", runs["crf"], tmp_path / "test.conll", "--html", page)
    assert ended.code == 0, ended.err
    lines = ended.out.splitlines()
    assert lines[1].startswith("token accuracy")
    assert lines[2].startswith("span F1")
    assert ["label", "words", "precision", "recall", "F1"] in [line.split() for line in lines]
    assert ["label", "spans", "precision", "recall", "F1"] in [line.split() for line in lines]
    assert lines[-1] == (
        "1 of 223 tags not in the training data, errors that the loss leaves out: 'B-GOD'"
    )
    assert "B-GOD" in page.read_text()


def test_show_draws_the_self_attention_of_a_transformer(runs, call):
    ended = call("show", runs["transformer"], "the old cat")
    assert ended.code == 0, ended.err
    assert "encoder self-attention" in ended.out
    ended = call("show", runs["crf"], "the old cat")
    assert "this model has no attention to draw" in ended.err


def test_words_without_columns_get_a_column_of_tags(call, tmp_path):
    recipe, conll = write_tagging_recipe(tmp_path, steps=1, every=1)
    (tmp_path / "words.conll").write_text("Dr\nAnna\n")
    options = ("--conll", conll, "--target-column", "2", "--run", tmp_path / "run")
    assert call("train", recipe, *options).code == 0
    ended = call("tag", tmp_path / "run", tmp_path / "words.conll")
    assert [line.split()[:1] for line in ended.out.splitlines()] == [["Dr"], ["Anna"], []]
    assert [len(line.split()) for line in ended.out.splitlines()] == [2, 2, 0]
    ended = call("tag", tmp_path / "run", tmp_path / "words.conll", "--target-column", "2")
    assert "1 column, but column 2 is needed" in ended.err


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "Dr\tO\nAnna\n",
            (),
            ":2: 1 column, but line 1 has 2\n"
            "  look for lost or added tabs, or for white space in a word\n",
        ),
        (
            "Dr\tO\n",
            ("--target-column", "ner"),
            ":1: no column is called 'ner'\n"
            "  give --source-column and --target-column; columns found: 2 without names: give a "
            "number\n",
        ),
        (
            "Dr\tO\n\n\tO\n",
            (),
            ":3: the word is empty\n  give one, such as _\n",
        ),
    ],
    ids=["missing cell", "missing column", "missing word"],
)
@pytest.mark.parametrize("command", ["tag", "evaluate", "train"])
def test_bad_input_raises_with_the_line_before_writing(
    command, text, options, message, runs, call, tmp_path
):
    path, written = tmp_path / "bad.conll", tmp_path / "written"
    path.write_text(text)
    words = {
        "tag": ("tag", runs["crf"], path, "-o", written),
        "evaluate": ("evaluate", runs["crf"], path, "--html", written),
        "train": ("train", "bilstm-tagger", "--conll", path, "--run", written),
    }
    ended = call(*words[command], *options)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.endswith(f"heedful: {path}{message}")
    assert not written.exists()


@pytest.mark.parametrize("command", ["evaluate", "train"])
def test_files_without_words_reported(command, runs, call, tmp_path):
    path = tmp_path / "comments.conll"
    path.write_text("# a sentence without words\n\n# another\n")
    target = runs["crf"] if command == "evaluate" else "bilstm-tagger"
    file = (path,) if command == "evaluate" else ("--conll", path, "--run", tmp_path / "run")
    ended = call(command, target, *file)
    expected = f"{path}: contains no words\n  give a file with a word and its tag per line\n"
    assert (ended.code, ended.err.endswith(expected)) == (2, True)
    assert call("tag", runs["crf"], path).out.splitlines() == [
        *("# a sentence without words", "", "# another", "")
    ]


def test_training_reports_dev_tags_that_are_not_in_the_data(call, tmp_path):
    recipe, conll = write_tagging_recipe(tmp_path, steps=1, every=1)
    (tmp_path / "dev.conll").write_text("Dr\tB-PER\nAnna\tB-GOD\nsees\tO\n")
    files = ("--conll", conll, "--dev-conll", tmp_path / "dev.conll")
    ended = call("train", recipe, *files, "--run", tmp_path / "run")
    assert ended.code == 0, ended.err
    line = "1 of 3 tags not in the training data, errors that the loss leaves out: 'B-GOD'"
    assert line in ended.err
