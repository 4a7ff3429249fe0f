"""Runs to compare: trained for a few steps, which is enough to differ."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def runs(tmp_path_factory):
    """A folder of three runs that copy letters, two of one system; do not write into it.

    `small-0` and `small-1` differ in their seed; `large` is another system.
    """
    import heedful
    from tests.commands import write_recipe
    from tests.shape_checking import unchecked

    folder = tmp_path_factory.mktemp("compared")
    recipe = str(write_recipe(folder / "data", steps=30, every=15))
    test = (
        f"data.test={{type: parallel-files, source: {folder}/test.src, target: {folder}/test.tgt}}"
    )
    lines = (folder / "data" / "source.txt").read_text().splitlines()[:40]
    for side in ("src", "tgt"):
        (folder / f"test.{side}").write_text("\n".join(lines) + "\n")
    changes: dict[str, list[str]] = {
        "small-0": [],
        "small-1": ["training.seed=1"],
        "large": ["model.decoder.attention.score.type=additive", "training.max_steps=40"],
    }
    with unchecked():
        for name, each in changes.items():
            heedful.train(recipe, folder / name, settings=[test, *each])
    return Path(folder)
