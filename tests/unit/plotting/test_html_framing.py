"""Frames: a page lets its own script and style run, and nothing else."""

import base64
import hashlib
import json
import re

import pytest

from heedful.plotting.html import render_page, to_script_json


@pytest.fixture
def page():
    return render_page(
        "run.html",
        title="<b>title</b> $run",
        styles=["run.css"],
        scripts=["charts.js"],
        data={"maps": {}, "run": ["</script><script>", "$title"]},
        variables=":root { --line-0: red; }",
    )


def test_the_policy_names_the_hash_of_what_is_there(page):
    policy = re.search(r'Security-Policy" content="([^"]+)"', page)[1]
    assert policy.startswith("default-src 'none'; ")
    for tag, kind in (("style", "style-src"), ("script", "script-src")):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)[1]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind} 'sha256-{digest}'" in policy


def test_nothing_that_is_filled_in_is_read_as_markup_or_as_a_place_to_fill(page):
    assert "&lt;b&gt;title&lt;/b&gt; $run" in page
    data = re.search(r'id="run">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(data) == ["</script><script>", "$title"]


def test_what_a_browser_cannot_read_is_refused():
    with pytest.raises(ValueError, match="not JSON compliant"):
        to_script_json([float("nan")])
