"""The full text of errors about sequence labeling."""

import pytest

from heedful.config import validate_settings
from heedful.errors import ConfigError
from heedful.recipes import Recipe
from tests.commands import heedful

TAGGER = {"type": "sequence-tagger"}
WORDS = {
    "type": "separate",
    "source": {"type": "word-character"},
    "target": {"type": "whitespace"},
}
HINT = (
    "  set `tokenizers: {type: separate, source: {type: word-character}, "
    "target: {type: whitespace}}`"
)


def message(model=(), **settings):
    with pytest.raises(ConfigError) as caught:
        validate_settings(Recipe, {"model": {**TAGGER, **dict(model)}, **settings}, location="test")
    return str(caught.value)


def test_sources_must_be_words():
    assert message(tokenizers={"type": "shared"}) == (
        "tokenizers.source.type: a sequence-tagger needs words that are separated by spaces\n"
        + HINT
    )


def test_targets_must_be_tags():
    assert message(tokenizers={**WORDS, "target": {"type": "label"}}) == (
        "tokenizers.target.type: the target texts of a sequence-tagger are tags, separated by "
        "spaces\n" + HINT
    )


def test_characters_need_tokenizer():
    tokenizers = {**WORDS, "source": {"type": "whitespace"}}
    assert message({"characters": "lstm"}, tokenizers=tokenizers) == (
        "model.characters: set, but tokenizers.source.type is 'whitespace'\n" + HINT
    )


@pytest.mark.parametrize(
    ("setting", "value"), [("objective", "minimum-risk"), ("scheduled_sampling", "linear")]
)
def test_training_settings_that_need_a_decoder(setting, value):
    assert message(tokenizers=WORDS, training={setting: {"type": value}}) == (
        f"training.{setting}.type: '{value}' needs a decoder, and a sequence-tagger has none\n"
        f"  remove training.{setting}"
    )


def test_tags_not_smoothed():
    assert message(tokenizers=WORDS, training={"label_smoothing": 0.1}) == (
        "training.label_smoothing: is 0.1, but the tags of a sentence are not smoothed\n"
        "  set training.label_smoothing to 0"
    )


def train(capsys, monkeypatch, folder, text, *options):
    (folder / "words.conll").write_text(text)
    words = ("train", "bilstm-tagger", "--conll", folder / "words.conll", *options)
    ended = heedful(capsys, monkeypatch, *words, "--run", folder / "run")
    assert ended.code == 2
    return ended.err


def test_span_f1_needs_tags_of_spans(capsys, monkeypatch, tmp_path):
    text = "".join(f"w{index}\tNOUN\n\n" for index in range(40))
    assert train(capsys, monkeypatch, tmp_path, text, "--metric", "span-f1").endswith(
        "heedful: training.metric_for_best_model: span-f1 needs tags of spans, such as B-TYPE and "
        "I-TYPE, and dev has none\n  set training.metric_for_best_model to accuracy\n"
    )


def test_words_and_tags_of_a_pair_must_be_as_many(capsys, monkeypatch, tmp_path):
    lines = ["a b\tX Y\n"] * 30 + ["a b c\tX Y\n"]
    (tmp_path / "pairs.tsv").write_text("".join(lines))
    setting = f"data.train={{type: tsv, path: {tmp_path / 'pairs.tsv'}}}"
    ended = heedful(
        capsys,
        monkeypatch,
        *("train", "bilstm-tagger", "--run", tmp_path / "run", "--set", setting),
    )
    assert ended.code == 2
    assert ended.err.endswith(
        f"heedful: {tmp_path / 'pairs.tsv'}, line 31: the sentence has 3 words, but 2 tags\n"
        "  give one tag for each word; words and tags are separated by single spaces\n"
    )


def test_columns_need_conll_input(capsys, monkeypatch, tmp_path):
    options = ("--target-column", "2")
    ended = heedful(capsys, monkeypatch, "tag", tmp_path, *options, stdin="a\n")
    assert (ended.code, ended.err) == (
        2,
        "heedful: --target-column: works only with CoNLL input\n  add --input-format conll\n",
    )


def test_tag_with_another_run(capsys, monkeypatch, trained):
    ended = heedful(capsys, monkeypatch, "tag", trained, stdin="a\n")
    assert (ended.code, ended.err) == (
        2,
        f"heedful: {trained}: this run translates\n  use `heedful translate {trained} FILE`\n",
    )


def test_page_of_confusions_needs_labels(capsys, monkeypatch, trained, tmp_path):
    ended = heedful(capsys, monkeypatch, "evaluate", trained, "--html", tmp_path / "page.html")
    assert (ended.code, ended.err) == (
        2,
        "heedful: --html: has no effect: this run translates\n  leave it out\n",
    )
