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
    """Outputs of two systems, and their references."""
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


def test_scores_have_signatures(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c", "d e f g"], ["a b", "c", "d e f h"])
    ended = call(trained, *files)
    assert ended.code == 0
    title, bleu, chrf, exact = ended.out.splitlines()
    assert title == f"3 pairs of {tmp_path}/source and {tmp_path}/target"
    assert exact.split()[:3] == ["exact", "match", "66.67"]
    assert bleu.startswith("BLEU")
    assert f"version:{sacrebleu.__version__}" in bleu
    assert chrf.startswith("chrF")


def test_scores_printed_as_json(call, trained, tmp_path):
    files = write(tmp_path, ["a b"], ["a b"])
    ended = call(trained, *files, "--json", "--beam", "1")
    assert [metric["name"] for metric in json.loads(ended.out)] == [
        "BLEU",
        "chrF",
        "exact match",
    ]
    assert json.loads(ended.out)[2]["value"] == 100.0


def test_outputs_of_a_file_scored(call, files):
    ended = call("--outputs", "good", "--target", "target", "--metrics", "exact-match,wer")
    assert ended.code == 0
    assert ended.out.splitlines() == [
        "3 outputs of good against target",
        "exact match   66.67   case:mixed|space:kept",
        "WER            9.09   nrefs:1|case:mixed|tok:space|nearest:errors",
    ]


def test_files_of_pairs_scored_as_parallel_files_are(call, files, trained, tmp_path):
    rows = zip(files["source"], files["target"], strict=True)
    (tmp_path / "test.csv").write_text("".join(f"{b},1,{a}\r\n" for a, b in rows))
    columns = "--source-column", "3", "--target-column", "1"
    scores = "--metrics", "bleu,chrf", "--json"
    for option in (["--pairs", "test.csv"], ["test.csv"]):
        expected = call(trained, "--source", "source", "--target", "target", *scores)
        assert call(trained, *option, *columns, *scores).out == expected.out != ""
    expected = call("--outputs", "good", "--source", "source", "--target", "target", *scores)
    assert call("--outputs", "good", "--pairs", "test.csv", *columns, *scores).out == expected.out


def test_columns_need_a_file_of_pairs(call, files, trained):
    result = call(trained, "--source", "source", "--target", "target", "--source-column", "3")
    assert (result.code, result.err) == (
        2,
        "heedful: --source-column: works only with a file of pairs\n"
        "  add --pairs FILE, --labeled FILE or --conll FILE\n",
    )


def test_outputs_of_standard_input_scored(call, files):
    text = "\n".join(files["good"])
    ended = call("--outputs", "-", "--target", "target", stdin=text)
    assert ended.out.splitlines()[0] == "3 outputs of standard input against target"


def test_outputs_scored_against_several_references(call, files):
    targets = "--target", "target", "--target", "other"
    title, bleu, _, exact = call("--outputs", "good", *targets).out.splitlines()
    assert title == "3 outputs of good against target and other"
    assert exact.split()[2] == "100.00"
    expected = sacrebleu.corpus_bleu(files["good"], [files["target"], files["other"]])
    assert bleu.split()[1] == f"{expected.score:.2f}"
    assert "nrefs:2" in bleu


def test_run_is_scored_against_several_references(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["x", "c"])
    (tmp_path / "more").write_text("a b\ny\n")
    ended = call(trained, *files, "--target", tmp_path / "more", "--metrics", "exact-match")
    assert ended.out.splitlines()[0].endswith(f"/target and {tmp_path}/more")
    assert ended.out.splitlines()[1].split()[2] == "100.00"


def test_baseline_file_returns_differences(call, files):
    outputs = "--outputs", "good", "--target", "target", "--baseline", "bad"
    lines = call(*outputs, "--metrics", "exact-match", "--confidence").out.splitlines()
    # Two sentences to exchange: with both or neither, which is half the time, 2 differ again.
    assert lines[1].startswith("exact match   66.67   [")
    assert "+66.67 p=0." in lines[1]
    assert lines[2:] == [
        "[ ] 95 % of 1000 bootstrap samples",
        "+- from the baseline; * p < 0.05, by approximate randomization (10000 trials)",
    ]
    (told,) = json.loads(call(*outputs, "--metrics", "exact-match", "--json").out)
    assert told["baseline"]["value"] == pytest.approx(0)
    assert told["baseline"]["difference"] == pytest.approx(200 / 3)
    assert told["baseline"]["p_value"] == pytest.approx(1 / 2, abs=0.03)


def test_baseline_run_returns_differences(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["a b", "c"])
    ended = call(trained, *files, "--baseline", trained, "--json")
    assert [each["baseline"]["p_value"] for each in json.loads(ended.out)] == [
        1.0,
        1.0,
        1.0,
    ]
    (tmp_path / "out").write_text("a b\nd\n")
    ended = call("--outputs", tmp_path / "out", *files, "--baseline", trained, "--json")
    assert json.loads(ended.out)[2]["baseline"]["difference"] == -50


def test_groups_by_length(call, files):
    ended = call(
        "--outputs", "good", "--target", "target", "--source", "source", "--group-by", "length"
    )
    assert ended.out.splitlines()[4:] == [
        "",
        "words of the source  outputs    BLEU    chrF  exact match",
        *ended.out.splitlines()[-2:],
    ]
    short, long = (line.split() for line in ended.out.splitlines()[-2:])
    assert (short[:2], short[-1], long) == (
        ["1-5", "2"],
        "50.00",
        ["6-10", "1", "100.00", "100.00", "100.00"],
    )


def test_groups_by_sentence_type_and_labels(call, files):
    outputs = (
        "--outputs",
        "good",
        "--target",
        "target",
        "--metrics",
        "exact-match",
        "--group-by",
        "sentence-type",
    )
    assert call(*outputs, "--source", "source").out.splitlines()[-3:] == [
        "type of source  outputs  exact match",
        "question              1         0.00",
        "plain                 2       100.00",
    ]
    assert call(*outputs, "--labels", "labels").out.splitlines()[-3:] == [
        "label   outputs  exact match",
        "number        2       100.00",
        "speech        1         0.00",
    ]


def test_groups_by_word_frequency(call, files):
    outputs = "--outputs", "good", "--target", "target", "--metrics", "exact-match"
    ended = call(*outputs, "--group-by", "word-frequency", "--training-targets", "train")
    # Of 12 words and signs, "it" is not found; "two" and all of the first were never seen.
    assert ended.out.splitlines()[2:] == [
        "word recall   91.67   case:mixed|tok:words+signs",
        "",
        "count of the rarest word  outputs  exact match",
        "0                               2        50.00",
        "1                               1       100.00",
        "",
        "count in training  words  word recall",
        "0                      5        80.00",
        "1                      6       100.00",
        "2-4                    1       100.00",
    ]


def test_word_frequencies_come_from_the_training_data_of_a_run(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c"], ["a b", "z"])
    told = json.loads(call(trained, *files, "--group-by", "word-frequency", "--json").out)
    assert [group["name"] for group in told[0]["groups"]] == ["0", "100-999"]
    assert told[-1]["name"] == "word recall"


SOURCES, REFERENCES = ["a b c", "d", "e f"], ["a b c", "d", "e g"]


def by_hand(run):
    """Perplexity of the references and attention entropy of the outputs, sum by sum."""
    translator = load(run)
    scored = translator.score(list(zip(SOURCES, REFERENCES, strict=True)))
    outputs = translator.translate(SOURCES)
    total_nll = -sum(float(number) for result in scored for number in result.log_probs)
    tokens = sum(len(result.tokens) + 1 for result in scored)
    rows = [row for output in outputs for row in output.weights.astype(np.float64)]
    entropies = [-sum(p * math.log(p) for p in row if p > 0) for row in rows]
    return (
        math.exp(total_nll / tokens),
        math.exp(total_nll / (6 + 3)),
        sum(entropies) / len(entropies),
    )


def test_perplexity_and_attention_entropy_of_a_run(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, REFERENCES)
    names = "perplexity, perplexity-per-word, attention-entropy"
    told = json.loads(call(trained, *files, "--metrics", names, "--json").out)
    assert [each["name"] for each in told] == [
        *("perplexity per token", "perplexity per word", "attention entropy")
    ]
    assert [each["value"] for each in told] == pytest.approx(by_hand(trained), rel=1e-4)


def test_alignment_error_rate_of_a_run(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, REFERENCES)
    (tmp_path / "gold").write_text("0-0 1-1 2?1\n0-0\n0-0 1p1\n")
    links = "--metrics", "exact-match,aer", "--gold-alignments", tmp_path / "gold"
    told = json.loads(call(trained, *files, *links, "--group-by", "length", "--json").out)
    given = load(trained).score(list(zip(SOURCES, REFERENCES, strict=True)))
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


def test_model_metrics_have_intervals_and_baselines(call, trained, tmp_path):
    files = write(tmp_path, SOURCES, REFERENCES)
    names = "--metrics", "perplexity,attention-entropy"
    ended = call(
        trained,
        *files,
        *names,
        "--baseline",
        trained,
        "--confidence",
        "--group-by",
        "word-frequency",
    )
    lines = ended.out.splitlines()
    for line in lines[1:3]:
        assert "[" in line
        assert "p=1.0000" in line
    assert lines[3].startswith("word recall")
    told = json.loads(call(trained, *files, *names, "--json").out)
    numbers = [line.split()[3] for line in lines[1:2]] + [line.split()[2] for line in lines[2:3]]
    assert numbers == [f"{each['value']:.2f}" for each in told]


def test_perplexity_of_log_probabilities_in_a_file(call, files, tmp_path):
    (tmp_path / "scores").write_text("-1.5 -0.5\n-1\n-1\n")
    ended = call("--outputs", "scores", "--target", "target", "--metrics", "perplexity")
    assert ended.out.splitlines()[1] == "perplexity per token   2.72   per:token|end:counted"


@pytest.fixture
def requests(monkeypatch):
    """The requests of every later call of `Translator.predict`."""
    predict, requests = Translator.predict, []

    def record(self, texts, **options):
        requests.append(list(texts))
        return predict(self, requests[-1], **options)

    monkeypatch.setattr(Translator, "predict", record)
    return requests


def test_run_decodes_once_and_only_if_needed(call, trained, tmp_path, requests):
    files = write(tmp_path, SOURCES, REFERENCES)
    call(trained, *files, "--metrics", "bleu,chrf,attention-entropy")
    assert requests == [SOURCES]
    requests.clear()
    call(trained, *files, "--metrics", "perplexity,perplexity-per-word")
    assert [[request.target for request in texts] for texts in requests] == [REFERENCES]


def test_files_of_a_run_verified_once(call, trained, tmp_path, monkeypatch):
    verify, verified = manifest._verify, []

    def record(path, entry):
        verified.append(path)
        verify(path, entry)

    monkeypatch.setattr(manifest, "_verify", record)
    assert call(trained, *write(tmp_path, ["a"], ["a"])).code == 0
    assert verified
    assert len(verified) == len(set(verified))


def test_set_changes_settings_of_the_run(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c d"], ["a b", "c d"])
    beam = call(trained, *files, "--beam", 3, "--json")
    assert beam.out == call(trained, *files, "--set", "decoding.beam_size=3", "--json").out
    short = call(trained, *files, "--set", "decoding.max_length=1", "--metric", "exact-match")
    assert short.out.splitlines()[-1].split()[:3] == ["exact", "match", "0.00"]


def test_set_changes_the_test_set_of_the_recipe(call, trained, tmp_path):
    write(tmp_path, ["a b", "c d"], ["a b", "c d"])
    data = {"type": "parallel-files"}
    data |= {"source": f"{tmp_path}/source", "target": f"{tmp_path}/target"}
    ended = call(trained, "--set", f"data.test={json.dumps(data)}")
    assert ended.out.startswith("2 pairs of ")


@pytest.mark.parametrize("option", [("--set", "decoding.beam_size=3"), ("--beam", "3")])
def test_settings_of_a_run_need_a_run(call, files, option):
    ended = call("--outputs", "good", "--target", "target", *option)
    assert (ended.code, ended.err) == (
        2,
        f"heedful: {option[0]}: works only with a run\n  name a run, or leave it out\n",
    )


SUMMARY_METRICS = "rouge-1,novelty-2,fragment-coverage"


def test_source_metrics_compare_outputs_with_sources(call, files, tmp_path):
    (tmp_path / "source").write_text("Who was there?\none six two\na b c d\n")
    options = "--outputs", "good", "--target", "target", "--metrics", SUMMARY_METRICS
    ended = call(*options, "--source", "source", "--confidence", "--json")
    rouge, novelty, coverage = json.loads(ended.out)
    assert rouge["interval"]["low"] <= rouge["value"] <= rouge["interval"]["high"]
    # "Who is", "is there"; "one two"; "d e", "e f": 5 of 2 + 1 + 5 pairs of words.
    assert (novelty["name"], novelty["value"]) == ("novel 2-grams", 100 * 5 / 8)
    assert coverage["value"] == pytest.approx(100 * (2 / 3 + 1 + 4 / 6) / 3)
    assert coverage["interval"]["low"] >= 100 * 2 / 3 - 1e-9


def test_metrics_of_the_recipe_are_the_default(call, trained, tmp_path):
    files = write(tmp_path, ["a b", "c", "d e f g"], ["a b", "c", "d e f h"])
    named = f"evaluation.metrics=[{SUMMARY_METRICS}]"
    by_recipe = call(trained, *files, "--set", named)
    assert by_recipe.code == 0
    by_option = call(trained, *files, "--metrics", SUMMARY_METRICS)
    assert by_recipe.out == by_option.out
    assert [line.split()[0] for line in by_recipe.out.splitlines()[1:]] == [
        *("ROUGE-1", "novel", "fragment"),
    ]
