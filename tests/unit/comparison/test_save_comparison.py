import json
import math

import pytest

from heedful.comparison.report import comparison_to_json, save_comparison
from heedful.comparison.results import Comparison
from heedful.comparison.tables import to_csv, to_latex, to_markdown
from heedful.errors import StorageError
from tests.unit.comparison.format_examples import comparison, score, system


def several():
    return comparison(system("dot", score(20.25, deviation=0.5)), system("b", score(21.0, p=1.0)))


def test_every_format_is_written(tmp_path):
    result = several()
    files = save_comparison(result, tmp_path / "new" / "folder")
    assert [path.name for path in files] == [
        "comparison.json",
        "table.csv",
        "table.md",
        "table.tex",
        "report.html",
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert "dot" in texts["report.html"]
    assert texts["table.md"] == to_markdown(result)
    assert texts["table.csv"] == to_csv(result)
    assert texts["table.tex"] == to_latex(result)
    assert texts["comparison.json"] == comparison_to_json(result)


def test_json_has_every_field():
    saved = json.loads(comparison_to_json(several()))
    assert tuple(saved) == Comparison._fields
    first, second = saved["systems"]
    assert first["scores"][0]["stats"] == {"mean": 20.25, "std": 0.5}
    assert first["scores"][0]["by_length"] == [["1-5", 3, 20.25]]
    assert first["scores"][0]["difference"] is None
    assert second["scores"][0]["difference"] == {"value": 1.0, "p_value": 1.0}
    assert first["curves"][0][1] == {
        "step": 20,
        "seconds": None,
        "flops": None,
        "scores": {"loss": 1.5},
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_nonfinite_numbers_are_null(value):
    saved = json.loads(comparison_to_json(comparison(system("one", score(value)))))
    assert saved["systems"][0]["scores"][0]["stats"]["mean"] is None


def test_unwritable_folder_raises(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError) as caught:
        save_comparison(several(), tmp_path / "taken")
    assert caught.value.location == str(tmp_path / "taken")
