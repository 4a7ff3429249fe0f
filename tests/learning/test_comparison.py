"""The real command trains systems under one budget and finds the better one."""

import json

import pytest

from tests.commands import heedful, write_recipe

NO_ATTENTION = """
    wiring: {type: final-state}
"""


@pytest.mark.diagonal
def test_two_recipes_are_trained_under_one_budget_and_compared(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = write_recipe(tmp_path / "data").read_text()
    looking = "    wiring: {type: step-then-attend}\n    attention: {score: {type: bilinear}}\n"
    assert looking in text
    (tmp_path / "looks.yaml").write_text(text)
    (tmp_path / "blind.yaml").write_text(text.replace(looking, NO_ATTENTION))
    lines = (tmp_path / "data" / "source.txt").read_text().splitlines()[:100]
    (tmp_path / "src").write_text("\n".join(lines) + "\n")
    ended = heedful(
        *(capsys, monkeypatch, "compare", "--data", "looks.yaml"),
        *("--recipes", "blind.yaml,looks.yaml", "--budget", "200steps", "--num-seeds", "2"),
        *("--source", "src", "--target", "src", "--device", "cpu", "--json"),
    )
    assert ended.code == 0, ended.err
    told = json.loads(ended.out)
    blind, attention_records = told["systems"]
    assert [blind["name"], attention_records["name"]] == ["blind", "looks"]
    for system in (blind, attention_records):
        assert system["cost"]["steps"] == {"mean": 200, "deviation": 0}
        assert [point["step"] for point in system["curves"][0]] == list(range(20, 201, 20))
        assert len(system["runs"]) == 2
    exact = attention_records["max_eval_samples"][0]
    assert exact["over"]["mean"] > blind["max_eval_samples"][0]["over"]["mean"]
    assert exact["over"]["mean"] > 80
    assert exact["difference"]["p"] < 0.05
