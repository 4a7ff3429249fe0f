"""The metadata of the package: what an index of packages shows."""

import email
import re
from importlib import import_module
from pathlib import Path
from zipfile import ZipFile

import pytest

from heedful.storage.manifest import PACKAGED_RUN
from tests.documents.markdown import ROOT

RELATIVE_LINK = re.compile(r"\]\((?!https?://)")


@pytest.fixture
def metadata(tmp_path, monkeypatch):
    """Build the metadata as pip does it."""
    pytest.importorskip("hatchling")
    monkeypatch.chdir(ROOT)
    name = import_module("hatchling.build").prepare_metadata_for_build_wheel(str(tmp_path))
    return email.message_from_bytes(Path(tmp_path, name, "METADATA").read_bytes())


def test_wheel_has_the_demo(tmp_path, monkeypatch):
    pytest.importorskip("hatchling")
    monkeypatch.chdir(ROOT)
    name = import_module("hatchling.build").build_wheel(str(tmp_path))
    files = {path for path in PACKAGED_RUN.rglob("*") if path.is_file()}
    with ZipFile(tmp_path / name) as wheel:
        assert files == {
            PACKAGED_RUN.parents[1] / info.filename
            for info in wheel.infolist()
            if info.filename.startswith("heedful/demo/")
        }


def test_package_names_the_authors_and_license(metadata):
    assert metadata["Author"] == "The heedful authors"
    assert metadata["License-Expression"] == "Apache-2.0"


def test_links_of_the_long_description_work_elsewhere(metadata):
    description = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert description.startswith("# ")
    assert not RELATIVE_LINK.search(description)
    assert "[pytorch.org](https://pytorch.org/get-started/locally/)" in description


def test_links_become_absolute_with_an_address():
    pytest.importorskip("hatchling")
    package_readme = import_module("tools.package_readme").package_readme
    text = "![a](b.svg) [`c`](d.md#e) [f](https://g)"
    expected = "![a](https://x/raw/main/b.svg) [`c`](https://x/blob/main/d.md#e) [f](https://g)"
    assert package_readme(text, "https://x") == expected
    assert package_readme(text, None).startswith(" `c` [f](https://g)\n")
