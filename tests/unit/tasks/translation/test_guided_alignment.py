"""Links of guided alignment: spread to pieces of words, read from files, and bad files."""

import pytest

from heedful.aligners.links import Link
from heedful.errors import ConfigError, DataError
from heedful.experiment import train
from heedful.recipes import load_recipe
from heedful.tasks.translation.guided_alignment import spread_links
from tests.commands import write_recipe

MINIMUM_RISK = "training.objective={type: minimum-risk, num_samples: 2}"


def test_pieces_share_the_links_of_words():
    # Words "un|believ|able" and "." on one side, "nicht" and "zu glauben" on the other.
    links = spread_links({Link(0, 0), Link(1, 2)}, [0, 0, 0, -1, 1], [0, 1, 1, 2])
    assert links == {Link(0, 0), Link(1, 0), Link(2, 0), Link(4, 3)}


def recipe(tmp_path, *overrides):
    path = write_recipe(tmp_path, steps=2, every=2)
    return load_recipe(str(path), ["training.guided_alignment.weight=0.5", *overrides])


@pytest.mark.parametrize("tokenizer", ["word", "character"])
def test_links_of_a_file_are_those_of_the_pairs(tmp_path, tokenizer, capsys):
    path = write_recipe(tmp_path, steps=2, every=2)
    lines = (tmp_path / "source.txt").read_text().splitlines()
    links = [" ".join(f"{i}-{i}" for i, _ in enumerate(line.split())) for line in lines]
    (tmp_path / "links").write_text("".join(f"{line}\n" for line in links))
    settings = [
        f"training.guided_alignment.links={tmp_path / 'links'}",
        f"tokenizers.source.type={tokenizer}",
        f"tokenizers.target.type={tokenizer}",
    ]
    train(str(path), tmp_path / "run", settings=settings)
    num_links = sum(len(line.split()) for line in lines)  # letters, each one token
    pairs = "between the tokens of 600 pairs"
    assert f"guided alignment: {num_links:,} links {pairs}" in capsys.readouterr().err
    assert '"guided-alignment"' in (tmp_path / "run" / "metrics.jsonl").read_text()


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["0-0"],
            "{path}: 1 line of links, but {pairs} has 600 pairs\n"
            "  line n of the links must belong to pair n",
        ),
        (
            ["0-9"] * 600,
            "{path}:1: a link to target word 9, but there are {count}, counted from 0\n"
            "  words are separated by white space, in the texts and for the aligner",
        ),
    ],
)
def test_links_that_do_not_fit_reported(tmp_path, lines, message):
    path = tmp_path / "links"
    path.write_text("".join(f"{line}\n" for line in lines))
    config = recipe(tmp_path, f"training.guided_alignment.links={path}")
    with pytest.raises(DataError) as caught:
        train(config, tmp_path / "run")
    count = len((tmp_path / "source.txt").read_text().split("\n")[0].split())
    pairs = config.data.train.describe()
    assert str(caught.value) == message.format(path=path, pairs=pairs, count=count)


def test_guided_alignment_of_other_objectives_and_tasks_raises(tmp_path):
    with pytest.raises(ConfigError, match="works with the objective 'cross-entropy', not 'minimum"):
        recipe(tmp_path, MINIMUM_RISK)
    with pytest.raises(ConfigError, match="works with encoder-decoder models, but this run"):
        load_recipe("gpt-tiny", ["training.guided_alignment.weight=0.5"])
