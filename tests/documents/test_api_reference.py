"""docs/api.md is current and complete."""

import heedful
from tests.documents.api_reference import PAGE, missing_docs, reference

REFRESH = "python tests/documents/api_reference.py --write"


def test_api_reference_is_current():
    assert PAGE.read_text(encoding="utf-8") == reference(), REFRESH


def test_every_name_of_the_api_reference_has_a_description():
    assert missing_docs() == []


def test_api_reference_has_the_names_of_the_package():
    text = PAGE.read_text(encoding="utf-8")
    assert [name for name in heedful.__all__ if f"`{name}(" not in text] == ["__version__"]
