import json

import sacrebleu

from tests.commands import heedful


def write(tmp_path, sources, references):
    for name, lines in (("source", sources), ("target", references)):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    return "--source", tmp_path / "source", "--target", tmp_path / "target"


def test_metrics_come_with_their_signatures(capsys, monkeypatch, trained, tmp_path):
    files = write(tmp_path, ["a b", "c", "d e f g"], ["a b", "c", "d e f h"])
    ended = heedful(capsys, monkeypatch, "evaluate", trained, *files)
    assert ended.code == 0
    title, exact, of_words, of_characters = ended.out.splitlines()
    assert title == f"3 pairs of {tmp_path}/source and {tmp_path}/target"
    assert exact.split()[:3] == ["exact", "match", "66.67"]
    assert of_words.startswith("BLEU")
    assert f"version:{sacrebleu.__version__}" in of_words
    assert of_characters.startswith("chrF")


def test_json_is_for_programs(capsys, monkeypatch, trained, tmp_path):
    files = write(tmp_path, ["a b"], ["a b"])
    ended = heedful(capsys, monkeypatch, "evaluate", trained, *files, "--json", "--beam", "1")
    assert [metric["name"] for metric in json.loads(ended.out)] == ["exact match", "BLEU", "chrF"]
    assert json.loads(ended.out)[0]["value"] == 100.0
