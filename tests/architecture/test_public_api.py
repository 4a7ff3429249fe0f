"""The public API matches its listing, which is checked in."""

from difflib import unified_diff

from tests.architecture.public_api import LISTING, listing

REFRESH = "if the change is meant: python tests/architecture/public_api.py --write"


def test_public_api_matches_its_listing():
    listed = LISTING.read_text(encoding="utf-8").splitlines()
    changes = list(unified_diff(listed, listing().splitlines(), "listed", "found", lineterm=""))
    assert not changes, "\n".join([REFRESH, *changes])
