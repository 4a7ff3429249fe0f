import json
import math

import pytest

from heedful.comparison.results import Comparison
from heedful.comparison.saving import as_json, save
from heedful.comparison.tables import as_csv, as_latex, as_markdown
from heedful.errors import StorageError
from tests.unit.comparison.numbers import comparison, judged, system


def several():
    return comparison(system("dot", judged(20.25, deviation=0.5)), system("b", judged(21.0, p=1.0)))


def test_every_form_is_written(tmp_path):
    found = several()
    files = save(found, tmp_path / "new" / "folder")
    assert [path.name for path in files] == [
        "comparison.json",
        "table.csv",
        "table.md",
        "table.tex",
        "report.html",
    ]
    texts = {path.name: path.read_text(encoding="utf-8") for path in files}
    assert "dot" in texts["report.html"]
    assert texts["table.md"] == as_markdown(found)
    assert texts["table.csv"] == as_csv(found)
    assert texts["table.tex"] == as_latex(found)
    assert texts["comparison.json"] == as_json(found)


def test_json_holds_every_field_by_its_name():
    told = json.loads(as_json(several()))
    assert tuple(told) == Comparison._fields
    first, second = told["systems"]
    assert first["judged"][0]["over"] == {"mean": 20.25, "deviation": 0.5}
    assert first["judged"][0]["by_length"] == [["1-5", 3, 20.25]]
    assert first["judged"][0]["difference"] is None
    assert second["judged"][0]["difference"] == {"value": 1.0, "p": 1.0}
    assert first["curves"][0][1] == {
        "step": 20,
        "seconds": None,
        "operations": None,
        "scores": {"loss": 1.5},
    }


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_no_number_is_null(value):
    told = json.loads(as_json(comparison(system("one", judged(value)))))
    assert told["systems"][0]["judged"][0]["over"]["mean"] is None


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError) as caught:
        save(several(), tmp_path / "taken")
    assert caught.value.at == str(tmp_path / "taken")
