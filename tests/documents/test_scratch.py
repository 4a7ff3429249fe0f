"""The programs of docs/course/scratch and of two pages equal heedful's recipes."""

import sys

import pytest
import torch

from heedful.data.text.batching import Batch, SourceBatch
from heedful.recipes import load_recipe
from tests.documents.markdown import ROOT, python_of

FOLDER = ROOT / "docs" / "course" / "scratch"
sys.path.insert(0, str(FOLDER))
import train  # noqa: E402  the program of that folder

RECIPES = {
    "seq2seq": "seq2seq-2014-small",
    "lstmn": "lstmn-2016-shallow-small",
    "captioner": "show-attend-tell-2015-soft-small",
}
VOCAB, B, S, T = 11, 5, 7, 6
each_program = pytest.mark.parametrize("name", RECIPES)


def build_pair(name, seed):
    """Return heedful's model and the program's, with equal parameters far from their start."""
    torch.manual_seed(seed)
    theirs = load_recipe(RECIPES[name]).model.build(
        source_vocab_size=VOCAB, target_vocab_size=VOCAB
    )
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    program = train.load_program(name)
    mine = program["Model"](VOCAB)
    state = theirs.state_dict()
    names = {program["heedful_name"](own): own for own in mine.state_dict()}
    assert set(names) == set(state)  # every parameter, both ways
    mine.load_state_dict({own: state[other] for other, own in names.items()})
    return theirs.double().eval(), mine.double().eval(), names


def draw_batch(name, seed):
    generator = torch.Generator().manual_seed(seed)
    if name == "captioner":
        lengths = torch.full((B,), 64)
        source = torch.rand(B, 3, 32, 32, generator=generator, dtype=torch.double)
    else:
        lengths = torch.randint(1, S + 1, (B,), generator=generator)
        lengths[0] = S
        source = torch.randint(4, VOCAB, (B, S), generator=generator)
        source = source.masked_fill(torch.arange(S) >= lengths[:, None], train.PAD)
    targets = torch.randint(4, VOCAB, (B, T), generator=generator)
    inputs = torch.cat([torch.full((B, 1), train.BOS), targets[:, :-1]], 1)
    return source, lengths, inputs, targets


def assert_equal_for(name, seed):
    theirs, mine, names = build_pair(name, seed)
    source, lengths, inputs, targets = draw_batch(name, seed)
    log_probs, weights = mine(source, lengths, inputs)
    batch = Batch(SourceBatch(source, lengths), inputs, targets)
    output = theirs(batch, need_weights=weights is not None)
    exact = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(log_probs, output.log_probs, **exact)
    if weights is not None:
        torch.testing.assert_close(weights, output.weights, **exact)
    for prediction in (log_probs, output.log_probs):
        prediction.gather(-1, targets[..., None]).sum().backward()
    own = dict(mine.named_parameters())
    for other, parameter in theirs.named_parameters():
        torch.testing.assert_close(own[names[other]].grad, parameter.grad, rtol=1e-8, atol=1e-9)
    if name != "captioner":  # padding to another length changes nothing
        wider = torch.nn.functional.pad(source, (0, 3), value=train.PAD)
        torch.testing.assert_close(mine(wider, lengths, inputs)[0], log_probs, **exact)
        if weights is not None:
            assert (weights.mT[torch.arange(S) >= lengths[:, None]] == 0).all()


@each_program
def test_program_equals_its_recipe(name):
    assert_equal_for(name, seed=1)


@pytest.mark.wide
@each_program
def test_program_equals_its_recipe_for_many_parameters(name):
    for seed in range(2, 20):
        assert_equal_for(name, seed)


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_program_is_short_plain_torch(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 150
    assert "import heedful" not in text
    assert "from heedful" not in text


@pytest.mark.learning
@pytest.mark.parametrize("name", [*RECIPES, *train.PAGES])
def test_program_learns(name, capsys):
    assert train.main(name) > (0.5 if name == "seq2seq" else 0.9)
    assert f"{name}: " in capsys.readouterr().out


@pytest.mark.parametrize("name", train.PAGES)
def test_model_of_page_is_short_plain_torch_and_equals_the_recipe(name):
    page = ROOT / "docs" / "attention" / train.PAGES[name]
    program = python_of(page.read_text(encoding="utf-8").split("## The same parts")[0])
    exec(compile(program, page, "exec"), {"__name__": name})  # asserts the same numbers
    model = program.split("from heedful.data")[0]
    assert "heedful" not in model
    assert len([line for line in model.splitlines() if line]) <= 150
