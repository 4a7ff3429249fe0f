import json
import math

import numpy as np
import pytest
import sacrebleu

from heedful import load
from heedful.storage import manifest
from heedful.tasks.translation.translator import Translator
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
    assert [metric["name"] for metric in json.loads(ended.out)] == [
        "exact match",
        "BLEU",
        "chrF",
    ]
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
    assert [each["baseline"]["p"] for each in json.loads(ended.out)] == [
        1.0,
        1.0,
        1.0,
    ]
    (tmp_path / "out").write_text("a b\nd\n")
    ended = call("--outputs", tmp_path / "out", *files, "--baseline", trained, "--json")
    assert json.loads(ended.out)[0]["baseline"]["difference"] == -50


def test_parts_by_length(call, files):
    ended = call(
        "--outputs", "good", "--target", "target", "--source", "source", "--group-by", "length"
    )
    assert ended.out.splitlines()[4:] == [
        "",
        "words of the source  outputs  exact match    BLEU    chrF",
        *ended.out.splitlines()[-2:],
    ]
    short, long = (line.split() for line in ended.out.splitlines()[-2:])
    assert (short[:3], long) == (["1-5", "2", "50.00"], ["6-10", "1", "100.00", "100.00", "100.00"])


def test_parts_by_kind_and_by_labels(call, files):
    outputs = (
        "--outputs",
        "good",
        "--target",
        "target",
        "--metrics",
        "exact-match",
        "--group-by",
        "kind",
    )
    assert call(*outputs, "--source", "source").out.splitlines()[-3:] == [
        "kind of source  outputs  exact match",
        "question              1         0.00",
        "plain                 2       100.00",
    ]
    assert call(*outputs, "--labels", "labels").out.splitlines()[-3:] == [
        "label   outputs  exact match",
        "number        2       100.00",
        "speech        1         0.00",
    ]


def test_parts_by_rare_words(call, files):
    outputs = "--outputs", "good", "--target", "target", "--metrics", "exact-match"
    ended = call(*outputs, "--group-by", "rare", "--train", "train")
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
    told = json.loads(call(trained, *files, "--group-by", "rare", "--json").out)
    assert [group["name"] for group in told[0]["groups"]] == ["0", "100-999"]
    assert told[-1]["name"] == "word recall"


SOURCES, WANTED = ["a b c", "d", "e f"], ["a b c", "d", "e g"]


def by_hand(run):
    """Perplexity of the references and entropy of what a run looks at, sum by sum."""
    translator = load(run)
    given = translator.score(list(zip(SOURCES, WANTED, strict=True)))
    found = translator.translate(SOURCES)
    total_nll = -sum(float(number) for each in given for number in each.log_probs)
    tokens = sum(len(each.tokens) + 1 for each in given)
    rows = [row for each in found for row in each.weights.astype(np.float64)]
    spread = [-sum(share * math.log(share) for share in row if share > 0) for row in rows]
    return math.exp(total_nll / tokens), math.exp(total_nll / (6 + 3)), sum(spread) / len(spread)


def test_a_run_tells_how_likely_references_are_and_how_widely_it_looks(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, WANTED)
    names = "perplexity, perplexity-per-word, attention-entropy"
    told = json.loads(call(trained, *files, "--metrics", names, "--json").out)
    assert [each["name"] for each in told] == [
        *("perplexity per token", "perplexity per word", "attention entropy")
    ]
    assert [each["value"] for each in told] == pytest.approx(by_hand(trained), rel=1e-4)


def test_links_of_a_run_are_held_against_those_that_people_made(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, WANTED)
    (tmp_path / "gold").write_text("0-0 1-1 2?1\n0-0\n0-0 1p1\n")
    links = "--metrics", "exact-match,aer", "--gold-alignments", tmp_path / "gold"
    told = json.loads(call(trained, *files, *links, "--group-by", "length", "--json").out)
    given = load(trained).score(list(zip(SOURCES, WANTED, strict=True)))
    found, sure = set(), {(0, 0, 0), (0, 1, 1), (1, 0, 0), (2, 0, 0)}
    possible = {*sure, (0, 2, 1), (2, 1, 1)}
    for number, each in enumerate(given):
        best = each.weights.argmax(axis=1).tolist()  # one token is one word here; the last the end
        places = enumerate(best)
        found |= {
            (number, place, row) for row, place in places if place < each.weights.shape[1] - 1
        }
    right = len(found & sure) + len(found & possible)
    assert told[1]["name"] == "AER"
    assert told[1]["value"] == pytest.approx(100 * (1 - right / (len(found) + len(sure))))
    assert told[1]["groups"] == [{"name": "1-5", "size": 3, "value": told[1]["value"]}]


def test_what_a_run_tells_has_intervals_and_is_compared_with_a_baseline(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, WANTED)
    names = "--metrics", "perplexity,attention-entropy"
    ended = call(
        trained, *files, *names, "--baseline", trained, "--confidence", "--group-by", "rare"
    )
    lines = ended.out.splitlines()
    for line in lines[1:3]:
        assert "[" in line
        assert "p=1.0000" in line
    assert lines[3].startswith("word recall")
    told = json.loads(call(trained, *files, *names, "--json").out)
    numbers = [line.split()[3] for line in lines[1:2]] + [line.split()[2] for line in lines[2:3]]
    assert numbers == [f"{each['value']:.2f}" for each in told]


def test_log_probabilities_of_any_system_can_be_measured(call, files, tmp_path):
    (tmp_path / "scores").write_text("-1.5 -0.5\n-1\n-1\n")
    ended = call("--outputs", "scores", "--target", "target", "--metrics", "perplexity")
    assert ended.out.splitlines()[1] == "perplexity per token   2.72   per:token|end:counted"


@pytest.fixture
def asked(monkeypatch):
    """All that translators are asked from here on."""
    stream, noted = Translator.stream, []

    def noting(self, texts, **options):
        noted.append(list(texts))
        return stream(self, noted[-1], **options)

    monkeypatch.setattr(Translator, "stream", noting)
    return noted


def test_a_run_is_asked_no_more_than_it_must(call, trained, tmp_path, asked):
    files = write(tmp_path, SOURCES, WANTED)
    call(trained, *files, "--metrics", "bleu,chrf,attention-entropy")
    assert asked == [SOURCES]
    asked.clear()
    call(trained, *files, "--metrics", "perplexity,perplexity-per-word")
    assert [[each.target for each in texts] for texts in asked] == [WANTED]


def test_files_of_a_run_are_held_against_its_manifest_once(call, trained, tmp_path, monkeypatch):
    verify, seen = manifest._verify, []

    def noting(path, entry):
        seen.append(path)
        verify(path, entry)

    monkeypatch.setattr(manifest, "_verify", noting)
    assert call(trained, *write(tmp_path, ["a"], ["a"])).code == 0
    assert seen
    assert len(seen) == len(set(seen))
