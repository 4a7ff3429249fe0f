"""Programs in exported folders that use a model without heedful: `translate.py`, `generate.py`.

They need the runtime of the format and `text_tokenizer.py`, a copy of
`heedful/tokenization/standalone.py`. Invariant: their outputs equal those of the run with greedy
search.
"""

import shutil
from pathlib import Path
from typing import Any, NamedTuple

from heedful.conversion.hf_folder import write_json
from heedful.models.language_model import LanguageModel
from heedful.tasks.prediction import LoadedRun
from heedful.tokenization import standalone

TOKENIZERS = "tokenizers"  # folder of the tokenizers in an exported folder
_PROGRAM = '''\
"""{title}: python {name}.py < TEXTS"""

import sys
from pathlib import Path

{imports}
from text_tokenizer import load_tokenizers

FOLDER = Path(__file__).resolve().parent
source, target = load_tokenizers(FOLDER / "tokenizers")
{limit}{code}

if __name__ == "__main__":
    for line in sys.stdin:
        print({name}(line.rstrip("\\n")))
'''
_LIMIT = """

def max_length(tokens):
    return min(int((len(tokens) + 1) * {ratio} + {offset}), {maximum})

"""
_USAGE = """\
## Use

Needs Python and `pip install {packages}`. {note} In this folder:

```bash
python {name}.py < TEXTS
```

```python
from {name} import {name}

print({name}("a text"))
```
"""


class Program(NamedTuple):
    """The part of a program that depends on the format."""

    imports: str
    code: str
    """Code that builds the model and defines `translate(text)` or `generate(text)`."""
    packages: str
    note: str


def program_name(run: LoadedRun) -> str:
    """Return the name of the program of a run, and of its function."""
    return "generate" if isinstance(run.model, LanguageModel) else "translate"


def has_program(run: LoadedRun) -> bool:
    """Whether texts can be encoded and decoded without heedful."""
    types = {config.type for config in _tokenizer_settings(run).values()}
    return types <= {*standalone.STANDALONE_TYPES}


def write_program(run: LoadedRun, folder: Path, program: Program) -> None:
    """Write tokenizers, and a program if these need no heedful."""
    run.tokenizers.save(folder / TOKENIZERS)
    if not has_program(run):
        return
    settings = {
        name: config.model_dump(mode="json", include={"type", "normalization"})
        for name, config in _tokenizer_settings(run).items()
    }
    write_json(folder / TOKENIZERS / standalone.SETTINGS_FILE, settings)
    shutil.copyfile(standalone.__file__, folder / "text_tokenizer.py")
    name = program_name(run)
    title = "Translate lines of text" if name == "translate" else "Continue lines of text"
    limit, decoding = "", run.config.decoding
    if name == "translate":
        ratio, offset = decoding.max_length_ratio, decoding.max_length_offset
        limit = _LIMIT.format(ratio=ratio, offset=offset, maximum=decoding.max_length or 10**6)
    text = _PROGRAM.format(
        title=title, name=name, imports=program.imports, limit=limit, code=program.code
    )
    (folder / f"{name}.py").write_text(text, encoding="utf-8")


def describe_program(run: LoadedRun, program: Program) -> str:
    """Return the section of the model card that shows how the program is used."""
    if not has_program(run):
        return f"## Use\n\nToken ids come from heedful. {program.note}"
    uses_pieces = any(config.type == "subword" for config in _tokenizer_settings(run).values())
    packages = program.packages + (" sentencepiece" if uses_pieces else "")
    return _USAGE.format(packages=packages, note=program.note, name=program_name(run))


def _tokenizer_settings(run: LoadedRun) -> dict[str, Any]:
    config = run.config.tokenizers
    if run.tokenizers.source is run.tokenizers.target:
        return {"shared": config.source_config}
    return {"source": config.source, "target": config.target}
