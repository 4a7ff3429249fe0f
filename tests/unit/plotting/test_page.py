"""A page admits its own script and style, and nothing else; its script is bundled from modules."""

import base64
import hashlib
import json
import re
from collections import defaultdict
from importlib.resources import files

import pytest

from heedful.inspection.attention_map import MAX_TABLE_CELLS
from heedful.plotting import raster, svg
from heedful.plotting.html import bundle_modules, read_asset, render_page, to_script_json


@pytest.fixture
def page():
    return render_page(
        "<main>$run</main>",
        title="<b>title</b> $run",
        styles=["run.css"],
        scripts=["run-page.js"],
        data={"run": ["</script><script>", "$title"]},
        extra_style=":root { --line-0: red; }",
    )


def test_policy_has_the_hashes_of_script_and_style(page):
    policy = re.search(r'Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for tag, directive in (("style", "style-src"), ("script", "script-src")):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy


def test_inserted_text_is_not_parsed_as_markup_or_placeholder(page):
    assert "&lt;b&gt;title&lt;/b&gt; $run" in page
    assert "<main>$run</main>" in page
    data = re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data) == ["</script><script>", "$title"]


def test_nan_is_not_valid_script_json():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_script_json([float("nan")])


# ----- modules -----

MODULES = {
    "page.js": 'import { draw } from "./chart.js";\nimport "./table.js";\nconst [x, y] = draw();\n',
    "chart.js": 'import {\n  scale,\n} from "./scale.js";\nexport function draw() { scale(); }\n',
    "table.js": 'import { scale } from "./scale.js";\nexport class Table {}\n',
    "scale.js": "// Of charts.\n/** @type {any}\n */\nexport const scale = () => {}; // not yet\n",
}


def test_bundle_has_each_module_once_after_those_it_imports():
    assert bundle_modules("page.js", "table.js", read=MODULES.__getitem__) == (
        '(() => {\n"use strict";\n'
        "const scale = () => {};\n"
        "function draw() { scale(); }\n"
        "class Table {}\n"
        "const [x, y] = draw();\n"
        "})();\n"
    )


@pytest.mark.parametrize(
    ("module", "message"),
    [
        ('import { zoom } from "./scale.js";\n', "scale.js does not export ['zoom']"),
        ('import "./chart.js";\nfunction draw() {}\n', "draw is defined in chart.js and in new.js"),
        (
            'import "./chart.js";\nlet { a, draw } = b;\n',
            "draw is defined in chart.js and in new.js",
        ),
        ('import "./new.js";\n', "new.js and new.js import each other"),
        ('import all from "./scale.js";\n', "import all from"),
        ("export default function () {}\n", "default function"),
    ],
)
def test_bundle_rejects_what_a_shared_scope_would_change(module, message):
    with pytest.raises(AssertionError, match=re.escape(message)):
        bundle_modules("new.js", read={**MODULES, "new.js": module}.__getitem__)


def test_no_function_is_defined_in_two_modules():
    """Methods aside, also functions within functions count, and constants at the top."""
    pattern = r"(?:^|\s)(?:function|class) (\w+)|^(?:export )?(?:const|let) (\w+)"
    owners = defaultdict(set)
    for path in (files("heedful.plotting") / "page").iterdir():
        if path.name.endswith(".js"):
            for names in re.findall(pattern, path.read_text(encoding="utf-8"), re.MULTILINE):
                owners["".join(names)].add(path.name)
    assert {name: paths for name, paths in owners.items() if len(paths) > 1} == {}
    assert len(owners) > 50


def test_constants_of_scripts_are_those_of_python():
    constants = {
        "numbers.js": {"STRONG": svg.DARK_TEXT_THRESHOLD, "FAINT": svg.FAINT_THRESHOLD},
        "image-blend.js": {"FADED": raster.FADED, "TINT": raster.TINT},
        "attention-heatmap.js": {"MAX_TABLE_CELLS": MAX_TABLE_CELLS},
    }
    for module, values in constants.items():
        for name, value in values.items():
            assert f"const {name} = {value};" in read_asset(module)
