"""Build the site of docs/: static pages that work from a folder, without a network.

python -m tools.site [OUT]     default: site/

The pages are copied before Sphinx reads them: CONTRIBUTING and CHANGELOG become pages, notebooks
become Markdown, docs/api.md becomes pages with full docstrings, links to files that are no pages
become plain text, and a line `<!-- live: demo -->` becomes the page that `heedful export RUN --to
page` writes. Pages that moved (docs/redirects.txt) lead to their new place.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.source import SOURCE, Documented, parse, public_definitions
from tests.documents.api_reference import SECTIONS

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PREPARED = ROOT / ".site"
ADDED = {"CONTRIBUTING.md": "project", "CHANGELOG.md": "project"}
_KINDS = ("scores", "features", "alignments", "readouts", "positions", "auxiliary-losses")
FOLDERS = {  # the pages below a page, in the order of the sidebar
    "attention/README.md": ["*", *(f"{kind}/*" for kind in _KINDS)],
    "lab/README.md": ["*"],
    "python.md": ["notebooks/*"],
}
LISTS = {"decisions": "Decisions", "contributing": "For contributors"}  # folders without a page
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?![a-z]+:)([^)#]*)(#[^)]*)?\)")
_LIVE = re.compile(r"^<!-- live: ([\w-]+) -->$", re.MULTILINE)


def main() -> None:
    """Prepare the pages, then run Sphinx; warnings are errors."""
    out = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "site").resolve()
    prepare(PREPARED)
    command = [sys.executable, "-m", "sphinx", "-b", "html", "-q", "-W", "--keep-going"]
    command += ["-d", str(PREPARED.with_name(".site-cache")), str(PREPARED), str(out)]
    if code := subprocess.run(
        command, check=False, cwd=ROOT, env={**os.environ, "LC_ALL": "C.UTF-8"}
    ).returncode:
        sys.exit(code)
    print(f"wrote {out}/index.html")


def prepare(folder: Path) -> None:
    """Write what Sphinx reads; a file that did not change keeps its time."""
    pages = {path.relative_to(DOCS).as_posix(): path for path in DOCS.rglob("*") if path.is_file()}
    pages |= {f"{place}/{name}": ROOT / name for name, place in ADDED.items()}
    written = {"extra"}
    for name, path in pages.items():
        written.add(name)
        if path.suffix == ".md":
            _write(folder / name, page(name, path, set(pages)))
        elif path.suffix == ".ipynb":
            written.add(f"{name[:-6]}.md")
            text = notebook_page(json.loads(path.read_text("utf-8")))
            _write(folder / f"{name[:-6]}.md", with_links(text, name, path.parent, set(pages)))
        else:
            _write(folder / name, path.read_bytes())
    for name, text in {**api_pages(), **dict(list_pages())}.items():
        written.add(name)
        _write(folder / name, text)
    for path in folder.rglob("*"):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and name not in written and not name.startswith("extra/"):
            path.unlink()
    write_live_pages(folder / "extra" / "live")
    for old, new in redirects().items():
        target = os.path.relpath(f"{new}.html", Path(old).parent)
        refresh = f'<meta http-equiv="refresh" content="0; url={target}">'
        text = f'<!doctype html>{refresh}<title>Moved</title><a href="{target}">moved</a>\n'
        _write(folder / "extra" / f"{old}.html", text)


def redirects() -> dict[str, str]:
    """Return the pages that moved: old path, then new one, without ending."""
    lines = (DOCS / "redirects.txt").read_text(encoding="utf-8").splitlines()
    old_and_new = [line.split() for line in lines if not line.startswith("#")]
    return dict(old_and_new)


def page(name: str, path: Path, pages: set[str]) -> str:
    """Return a page as the site has it."""
    text = with_links(path.read_text(encoding="utf-8"), name, path.parent, pages)
    up = "../" * name.count("/")
    frame = rf'<iframe class="live" src="{up}live/\1.html" title="model" loading="lazy"></iframe>'
    text = _LIVE.sub(frame, text)
    if name == "api.md":
        return text.split("\n## ")[0] + _toctree([f"api/{_slug(title)}" for title in SECTIONS])
    return text + (_toctree(FOLDERS[name], is_glob=True) if name in FOLDERS else "")


def with_links(text: str, name: str, here: Path, pages: set[str]) -> str:
    """Return a text in which links lead to pages of the site, and others are plain text."""

    def link(match: re.Match[str]) -> str:
        image, label, target, anchor = match[1], match[2], match[3], match[4] or ""
        if not target:
            return match[0]
        file = (here / target).resolve()
        is_page = file.is_relative_to(DOCS) and file.is_file()
        place = file.relative_to(DOCS).as_posix() if is_page else None
        if file.parent == ROOT and file.name in ADDED:
            place = f"{ADDED[file.name]}/{file.name}"
        if file.is_dir() and file.is_relative_to(DOCS):
            place = f"{file.relative_to(DOCS).as_posix()}/README.md"
        if place is None or (place not in pages and Path(place).parent.name not in LISTS):
            return label
        place = re.sub(r"\.ipynb$", ".md", place)
        return f"{image}[{label}]({os.path.relpath(place, Path(name).parent)}{anchor})"

    return _LINK.sub(link, text)


def to_mathml(formula: str, display: str = "block") -> str:
    """Return a formula as MathML, which browsers draw without a script."""
    from latex2mathml.converter import convert

    return convert(
        formula.replace("{aligned}", "{split}"), display=display
    )  # as it is called there


def notebook_page(notebook: dict) -> str:
    """Return the cells of a notebook with their outputs as Markdown."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else _fence("python", source))
        for output in cell.get("outputs", []):
            text = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(_fence("text", "".join(text)))
    return "\n\n".join(parts) + "\n"


def api_pages() -> dict[str, str]:
    """Return a page of full docstrings for each section of docs/api.md."""
    return {f"api/{_slug(title)}.rst": _api_page(title, SECTIONS[title]) for title in SECTIONS}


def _api_page(title: str, modules: list[str]) -> str:
    lines = [title, "=" * len(title), ""]
    for entry in modules:
        module, _, listed = entry.partition(": ")
        heading = f"heedful.{module}"
        lines += [heading, "-" * len(heading), "", f".. py:module:: {heading}", ""]
        names = listed.split()
        for node in public_definitions(parse(SOURCE / f"{module.replace('.', '/')}.py").body):
            if (node.name in names or not names) and not node.name.endswith("Config"):
                lines += _directive(heading, node)
    return "\n".join(lines)


def _directive(module: str, node: Documented) -> list[str]:
    if not hasattr(node, "bases"):
        return [f".. autofunction:: {module}.{node.name}", ""]
    methods = [each.name for each in public_definitions(node.body) if not hasattr(each, "bases")]
    members = [f"   :members: {', '.join(methods)}"] if methods else []
    return [f".. autoclass:: {module}.{node.name}", *members, "   :show-inheritance:", ""]


def list_pages() -> Iterator[tuple[str, str]]:
    """Yield pages that list the pages of folders without one."""
    for folder, title in LISTS.items():
        if not (DOCS / folder / "README.md").exists():
            yield f"{folder}/README.md", f"# {title}\n" + _toctree(["*"], is_glob=True)


def write_live_pages(folder: Path) -> None:
    """Export the models that pages show at work, unless that is done."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md")]
    for run in sorted({name for text in texts for name in _LIVE.findall(text)}):
        if not (folder / f"{run}.html").exists():
            exported = folder / run
            shutil.rmtree(exported, ignore_errors=True)
            command = [sys.executable, "-m", "heedful", "export", run, "--to", "page", "--dtype"]
            subprocess.run([*command, "int8", "-o", str(exported), "--quiet"], check=True)
            (exported / "page.html").rename(folder / f"{run}.html")
            shutil.rmtree(exported)


def _toctree(names: list[str], *, is_glob: bool = False) -> str:
    glob = ":glob:\n" if is_glob else ""
    return f"\n```{{toctree}}\n:maxdepth: 1\n{glob}\n" + "\n".join(names) + "\n```\n"


def _fence(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"


def _slug(title: str) -> str:
    return re.sub(r"\W+", "-", title.lower())


def _write(path: Path, content: str | bytes) -> None:
    data = content.encode() if isinstance(content, str) else content
    if not path.exists() or path.read_bytes() != data:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


if __name__ == "__main__":
    main()
