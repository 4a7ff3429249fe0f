"""The compare command trains systems under one budget and finds the better one."""

import json

import pytest

from tests.commands import heedful, write_recipe

NO_ATTENTION = """
    wiring: {type: final-state}
"""


@pytest.mark.diagonal
@pytest.mark.slow
def test_recipes_trained_under_one_budget_and_compared(capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    text = write_recipe(tmp_path / "data").read_text()
    attention_settings = (
        "    wiring: {type: step-then-attend}\n    attention: {score: {type: bilinear}}\n"
    )
    assert attention_settings in text
    (tmp_path / "attention.yaml").write_text(text)
    (tmp_path / "no_attention.yaml").write_text(text.replace(attention_settings, NO_ATTENTION))
    lines = (tmp_path / "data" / "source.txt").read_text().splitlines()[:100]
    (tmp_path / "src").write_text("\n".join(lines) + "\n")
    result = heedful(
        *(capsys, monkeypatch, "compare", "--data", "attention.yaml"),
        *("--recipes", "no_attention.yaml,attention.yaml"),
        *("--budget", "200steps", "--num-seeds", "2"),
        *("--source", "src", "--target", "src", "--device", "cpu", "--json"),
    )
    assert result.code == 0, result.err
    comparison = json.loads(result.out)
    without_attention, with_attention = comparison["systems"]
    assert [without_attention["name"], with_attention["name"]] == ["no_attention", "attention"]
    for system in (without_attention, with_attention):
        assert system["cost"]["steps"] == {"mean": 200, "std": 0}
        assert [point["step"] for point in system["curves"][0]] == list(range(20, 201, 20))
        assert len(system["runs"]) == 2
    exact = with_attention["scores"][0]
    assert exact["stats"]["mean"] > without_attention["scores"][0]["stats"]["mean"]
    assert exact["stats"]["mean"] > 80
    assert exact["difference"]["p_value"] < 0.05
