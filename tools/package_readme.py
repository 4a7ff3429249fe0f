"""Build hook: the README of the package, whose links work outside the repository.

With an address `Source` in `project.urls`, relative links become addresses there. Without one they
become plain text: the documents are part of the source distribution.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?://)([^)]*)\)")
_NOTE = "The documents are in the folder `docs` of the source distribution."


def package_readme(text: str, address: str | None) -> str:
    """Return a README without relative links."""

    def replace(match: re.Match[str]) -> str:
        is_image, label, target = match[1], match[2], match[3]
        if address:
            kind = "raw" if is_image else "blob"
            return f"{is_image}[{label}]({address}/{kind}/main/{target})"
        return "" if is_image else label

    replaced = _LINK.sub(replace, text)
    return replaced if address else f"{replaced.rstrip()}\n\n{_NOTE}\n"


class PackageReadme(MetadataHookInterface):
    """Sets the long description."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Read README.md and replace its links."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        readme = package_readme(text, metadata.get("urls", {}).get("Source"))
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}
