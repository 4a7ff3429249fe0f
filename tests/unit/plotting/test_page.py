"""A page admits its own script and style, and nothing else."""

import base64
import hashlib
import json
import re

import pytest

from heedful.plotting.html import render_page, to_script_json


@pytest.fixture
def page():
    return render_page(
        "<main>$run</main>",
        title="<b>title</b> $run",
        styles=["run.css"],
        scripts=["charts.js"],
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
