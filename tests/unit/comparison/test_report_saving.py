import json
import math

import pytest

from heedful.comparison.report import comparison_to_json, save_comparison
from heedful.comparison.results import Comparison
from heedful.comparison.tables import to_csv, to_latex, to_markdown
from heedful.errors import StorageError
from tests.unit.comparison.numbers import comparison, judged, system


def several():
    return comparison(system("dot", judged(20.25, deviation=0.5)), system("b", judged(21.0, p=1.0)))


def test_every_form_is_written(tmp_path):
    found = several()
    files = save_comparison(found, tmp_path / "new" / "folder")
    assert [path.name for path in files] == [
        "comparison.json",
        "table.csv",
        "table.md",
        "table.tex",
        "report.html",
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert "dot" in texts["report.html"]
    assert texts["table.md"] == to_markdown(found)
    assert texts["table.csv"] == to_csv(found)
    assert texts["table.tex"] == to_latex(found)
    assert texts["comparison.json"] == comparison_to_json(found)


def test_json_holds_every_field_by_its_name():
    told = json.loads(comparison_to_json(several()))
    assert tuple(told) == Comparison._fields
    first, second = told["systems"]
    assert first["max_eval_samples"][0]["over"] == {"mean": 20.25, "deviation": 0.5}
    assert first["max_eval_samples"][0]["by_length"] == [["1-5", 3, 20.25]]
    assert first["max_eval_samples"][0]["difference"] is None
    assert second["max_eval_samples"][0]["difference"] == {"value": 1.0, "p": 1.0}
    assert first["curves"][0][1] == {
        "step": 20,
        "seconds": None,
        "operations": None,
        "scores": {"loss": 1.5},
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_is_null(value):
    told = json.loads(comparison_to_json(comparison(system("one", judged(value)))))
    assert told["systems"][0]["max_eval_samples"][0]["over"]["mean"] is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError) as caught:
        save_comparison(several(), tmp_path / "taken")
    assert caught.value.location == str(tmp_path / "taken")
