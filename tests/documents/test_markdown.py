"""Parsing of Markdown blocks, links and command lines."""

import pytest

from tests.documents.commands import mistakes, shell_lines
from tests.documents.markdown import anchors, blocks, links, python_of

DOCUMENT = """# A title, with `code`

See [there](docs/there.md#part "title") and `[not](here)`.

```python
x = 1
```

```console
$ heedful demo
trained
```

```python
y = x
```

```bash
heedful train reverse-tiny \\
  --run runs/copy
```
"""


def test_blocks_have_language_and_line():
    positions = [(block.language, block.line) for block in blocks(DOCUMENT)]
    assert positions == [("python", 6), ("console", 10), ("python", 15), ("bash", 19)]


def test_python_keeps_line_numbers():
    program = python_of(DOCUMENT).split("\n")
    assert (program[5], program[14], "".join(program)) == ("x = 1", "y = x", "x = 1y = x")


def test_console_output_is_skipped_and_continued_lines_joined():
    assert [line.split() for line in shell_lines(DOCUMENT)] == [
        ["heedful", "demo"],
        ["heedful", "train", "reverse-tiny", "--run", "runs/copy"],
    ]


def test_links_in_code_ignored():
    assert links(DOCUMENT) == ["docs/there.md#part"]


def test_anchors_of_headings():
    assert anchors(DOCUMENT) == {"a-title-with-code"}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("heedful demo --run runs/demo  # a comment", []),
        ("cat a.txt | heedful translate runs/a - --beam=3 > b.txt", []),
        (".venv/bin/heedful --version && make test-all JOBS=4", []),
        ("heedful dmeo", ["heedful dmeo"]),
        ("heedful demo --rnu a; make tset", ["heedful demo --rnu", "make tset"]),
        ("cat a.txt | heedful translate runs/a --beem 3", ["heedful translate --beem"]),
    ],
)
def test_unknown_commands_and_options_found(line, expected):
    assert mistakes(line) == expected
