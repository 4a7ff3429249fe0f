import json
import shutil

import pytest

from heedful.comparison.systems import group_runs
from heedful.errors import ConfigError
from tests.commands import heedful


def test_ensemble_is_a_system_with_the_scores_of_evaluate(runs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = runs / "small-0", runs / "large"
    ensemble, options = f"{one}+{two}", ["--metrics", "chrf,perplexity", "--json"]
    words = "compare", one, ensemble, "--baseline", ensemble, *options, "--device", "cpu"
    ended = heedful(capsys, monkeypatch, *words)
    assert ended.code == 0, ended.err
    report = json.loads(ended.out)
    assert [system["name"] for system in report["systems"]] == ["small-0", "small-0+large"]
    assert report["baseline"] == "small-0+large"
    words = "evaluate", one, "--ensemble-with", two, *options, "--device", "cpu"
    expected = [entry["value"] for entry in json.loads(heedful(capsys, monkeypatch, *words).out)]
    assert [each["stats"]["mean"] for each in report["systems"][1]["scores"]] == expected
    costs = [system["cost"] for system in report["systems"]]
    for name in ("steps", "training_seconds", "training_flops"):
        assert costs[1][name]["mean"] > costs[0][name]["mean"]
    assert report["systems"][1]["runs"] == [ensemble]


def test_folder_whose_name_has_a_plus_is_one_run(runs, tmp_path):
    folder = shutil.copytree(runs / "large", tmp_path / "a+b")
    (system,) = group_runs([folder])
    assert (system.name, system.runs, system.is_ensemble) == ("a+b", [(folder,)], False)


def test_member_that_is_named_twice_raises(runs):
    with pytest.raises(ConfigError, match="given twice"):
        group_runs([runs / f"large+{runs}/large"])
