import json

import pytest
import sacrebleu

from tests.commands import heedful


def write(tmp_path, sources, references):
    for name, lines in (("source", sources), ("target", references)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return "--source", tmp_path / "source", "--target", tmp_path / "target"


@pytest.fixture
def call(capsys, monkeypatch):
    return lambda *words, stdin="": heedful(capsys, monkeypatch, "evaluate", *words, stdin=stdin)


@pytest.fixture
def files(monkeypatch, tmp_path):
    """Files of the outputs of two systems, and what they should have said."""
    monkeypatch.chdir(tmp_path)
    texts = {
        "source": ["Quis est?", "unus duo", "a b c d e f"],
        "target": ["Who is it?", "one two", "a b c d e f"],
        "other": ["Who is there?", "one two", "a b c d e"],
        "good": ["Who is there?", "one two", "a b c d e f"],
        "bad": ["Who?", "one three", "a b d e f"],
        "train": ["one one one", "a b c d e f"],
        "labels": ["speech", "number", "number"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return texts


def test_metrics_come_with_their_signatures(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c", "d e f g"], ["a b", "c", "d e f h"])
    ended = call(trained, *files)
    assert ended.code == 0
    title, exact, of_words, of_characters = ended.out.splitlines()
    assert title == f"3 pairs of {tmp_path}/source and {tmp_path}/target"
    assert exact.split()[:3] == ["exact", "match", "66.67"]
    assert of_words.startswith("BLEU")
    assert f"version:{sacrebleu.__version__}" in of_words
    assert of_characters.startswith("chrF")


def test_json_is_for_programs(call, trained, tmp_path):
    files = write(tmp_path, ["a b"], ["a b"])
    ended = call(trained, *files, "--json", "--beam", "1")
    assert [metric["name"] for metric in json.loads(ended.out)] == ["exact match", "BLEU", "chrF"]
    assert json.loads(ended.out)[0]["value"] == 100.0


def test_outputs_of_any_system_can_be_measured(call, files):
    ended = call("--outputs", "good", "--target", "target", "--metrics", "exact-match,wer")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "3 outputs of good beside target",
        "exact match   66.67   case:mixed|space:kept",
        "WER            9.09   nrefs:1|case:mixed|tok:space|nearest:errors",
    ]


def test_outputs_may_come_from_a_pipe(call, files):
    text = "\n".join(files["good"])
    ended = call("--outputs", "-", "--target", "target", stdin=text)
    assert ended.out.splitlines()[0] == "3 outputs of standard input beside target"


def test_several_references_are_all_held_against_outputs(call, files):
    targets = "--target", "target", "--target", "other"
    title, exact, of_words, _ = call("--outputs", "good", *targets).out.splitlines()
    assert title == "3 outputs of good beside target and other"
    assert exact.split()[2] == "100.00"
    wanted = sacrebleu.corpus_bleu(files["good"], [files["target"], files["other"]])
    assert of_words.split()[1] == f"{wanted.score:.2f}"
    assert "nrefs:2" in of_words


def test_a_run_takes_several_references_too(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["x", "c"])
    (tmp_path / "more").write_text("a b\ny\n")
    ended = call(trained, *files, "--target", tmp_path / "more", "--metrics", "exact-match")
    assert ended.out.splitlines()[0].endswith(f"/target and {tmp_path}/more")
    assert ended.out.splitlines()[1].split()[2] == "100.00"


def test_a_baseline_of_a_file_is_compared_with(call, files):
    outputs = "--outputs", "good", "--target", "target", "--baseline", "bad"
    lines = call(*outputs, "--metrics", "exact-match", "--confidence").out.splitlines()
    # Two sentences to exchange: with both or neither, which is half the time, 2 differ again.
    assert lines[1].startswith("exact match   66.67   [")
    assert "+66.67 p=0." in lines[1]
    assert lines[2:] == [
        "[ ] 95 % of 1000 test sets drawn from these sentences",
        "+- from the baseline; * p < 0.05, by approximate randomisation (10000 trials)",
    ]
    (told,) = json.loads(call(*outputs, "--metrics", "exact-match", "--json").out)
    assert told["baseline"]["value"] == pytest.approx(0)
    assert told["baseline"]["difference"] == pytest.approx(200 / 3)
    assert told["baseline"]["p"] == pytest.approx(1 / 2, abs=0.03)


def test_a_run_may_be_the_baseline(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["a b", "c"])
    ended = call(trained, *files, "--baseline", trained, "--json")
    assert [each["baseline"]["p"] for each in json.loads(ended.out)] == [1.0, 1.0, 1.0]
    (tmp_path / "out").write_text("a b\nd\n")
    ended = call("--outputs", tmp_path / "out", *files, "--baseline", trained, "--json")
    assert json.loads(ended.out)[0]["baseline"]["difference"] == -50


def test_parts_by_length(call, files):
    ended = call("--outputs", "good", "--target", "target", "--source", "source", "--by", "length")
    assert ended.out.splitlines()[4:] == [
        "",
        "words of the source  outputs  exact match    BLEU    chrF",
        *ended.out.splitlines()[-2:],
    ]
    short, long = (line.split() for line in ended.out.splitlines()[-2:])
    assert (short[:3], long) == (["1-5", "2", "50.00"], ["6-10", "1", "100.00", "100.00", "100.00"])


def test_parts_by_kind_and_by_labels(call, files):
    outputs = "--outputs", "good", "--target", "target", "--metrics", "exact-match", "--by", "kind"
    assert call(*outputs, "--source", "source").out.splitlines()[-3:] == [
        "kind of source  outputs  exact match",
        "question              1         0.00",
        "plain                 2       100.00",
    ]
    assert call(*outputs, "--kinds", "labels").out.splitlines()[-3:] == [
        "label   outputs  exact match",
        "number        2       100.00",
        "speech        1         0.00",
    ]


def test_parts_by_rare_words(call, files):
    outputs = "--outputs", "good", "--target", "target", "--metrics", "exact-match"
    ended = call(*outputs, "--by", "rare", "--train", "train")
    # Of 12 words and signs, "it" is not found; "two" and all of the first were never seen.
    assert ended.out.splitlines()[2:] == [
        "word recall   91.67   case:mixed|tok:words+signs",
        "",
        "times the rarest word was seen  outputs  exact match",
        "0                                     2        50.00",
        "1                                     1       100.00",
        "",
        "times a word was seen  words  word recall",
        "0                          5        80.00",
        "1                          6       100.00",
        "2-4                        1       100.00",
    ]


def test_a_run_knows_what_it_learned_from(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["a b", "z"])
    told = json.loads(call(trained, *files, "--by", "rare", "--json").out)
    assert [group["name"] for group in told[0]["groups"]] == ["0", "100-999"]
    assert told[-1]["name"] == "word recall"
