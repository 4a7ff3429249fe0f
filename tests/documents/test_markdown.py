"""The readers of documents notice what is wrong in one."""

import pytest

from tests.documents.commands import mistakes, shell_lines
from tests.documents.markdown import anchors, blocks, links, python_of

TOKENIZER_FOLDER = """# A title, with `code`

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


def test_blocks_know_their_language_and_line():
    found = [(block.language, block.line) for block in blocks(TOKENIZER_FOLDER)]
    assert found == [("python", 6), ("console", 10), ("python", 15), ("bash", 19)]


def test_python_keeps_its_line_numbers():
    program = python_of(TOKENIZER_FOLDER).split("\n")
    assert (program[5], program[14], "".join(program)) == ("x = 1", "y = x", "x = 1y = x")


def test_output_is_no_command_and_a_continued_line_is_one():
    assert [line.split() for line in shell_lines(TOKENIZER_FOLDER)] == [
        ["heedful", "demo"],
        ["heedful", "train", "reverse-tiny", "--run", "runs/copy"],
    ]


def test_links_in_code_are_no_links():
    assert links(TOKENIZER_FOLDER) == ["docs/there.md#part"]


def test_headings_can_be_linked_to():
    assert anchors(TOKENIZER_FOLDER) == {"a-title-with-code"}


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("heedful demo --run runs/demo  # a comment", []),
        ("cat a.txt | heedful translate runs/a - --beam=3 > b.txt", []),
        (".venv/bin/heedful --version && make test-all JOBS=4", []),
        ("heedful dmeo", ["heedful dmeo"]),
        ("heedful demo --rnu a; make tset", ["heedful demo --rnu", "make tset"]),
        ("cat a.txt | heedful translate runs/a --beem 3", ["heedful translate --beem"]),
    ],
)
def test_a_command_or_option_that_does_not_exist_is_noticed(line, found):
    assert mistakes(line) == found
