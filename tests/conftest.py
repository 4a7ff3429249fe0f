"""Shape checks, seeds, thread settings and fixtures for all tests.

Nothing here imports torch, so that tests without it start fast.
"""

import copy
import gc
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")  # read by torch when it is first imported

if not Path("/dev/nvidia0").exists():  # Triton, where it is installed, reads it when imported
    os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest
from hypothesis import settings

from tests.shape_checking import check_shapes, enable_checks_of
from tests.suites import limited_time, thin_families
from tests.tracing import limited_tracing, untraced

SEED = 20260101

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as background processes inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)

check_shapes()

# Every local run draws a few new examples; CI has the same ones every time.
settings.register_profile("local", deadline=None, max_examples=10)
settings.register_profile("ci", deadline=None, max_examples=15, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")


def pytest_collection_finish() -> None:
    """Exclude all that was imported and collected from every later garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Check shapes in the tests that are meant to, before their fixtures are built."""
    enable_checks_of(item.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item):
    """Limit the time of quick tests; trace lines, for coverage, no more often than it helps."""
    with limited_time(item), limited_tracing(item):
        return (yield)


@pytest.fixture(autouse=True)
def _seeds():
    """Seed all random number generators before every test."""
    random.seed(SEED)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(SEED)
    if torch := sys.modules.get("torch"):
        # torch.manual_seed formats a stack trace for each accelerator that it waits for: 3 ms.
        has_accelerator = torch.accelerator.is_available()
        seed = torch.manual_seed if has_accelerator else torch.default_generator.manual_seed
        seed(SEED)


@pytest.fixture(autouse=True)
def _no_early_validation(monkeypatch):
    """Validate at the configured steps only, however slow the machine is."""
    if "heedful.experiment.validation" in sys.modules:
        monkeypatch.setattr("heedful.experiment.validation.FIRST_VALIDATION_SECONDS", float("inf"))


_values_by_text: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def _yaml_parsed_once(monkeypatch):
    """Parse equal texts once: commands read the recipe of the same run hundreds of times."""
    yaml_files = sys.modules.get("heedful.config.yaml_files")
    if yaml_files is None:
        return
    parse = yaml_files.parse_value

    def parse_once(text, *, location):
        if text not in _values_by_text:
            _values_by_text[text] = parse(text, location=location)
        return copy.deepcopy(_values_by_text[text])

    monkeypatch.setattr(yaml_files, "parse_value", parse_once)


_flops_by_shapes: dict[Any, float] = {}


@pytest.fixture(autouse=True)
def _equal_models_counted_once(monkeypatch):
    """Count equal models once: it takes half of the time of a training of a few steps."""
    flops = sys.modules.get("heedful.experiment.flops")
    if flops is None:
        return
    count = flops._training_flops

    def count_once(recipe, model, sizes, shape):
        parameters = tuple((p.shape, p.dtype, p.requires_grad) for p in model.parameters())
        key = recipe.task.name, recipe.model.model_dump_json(), parameters, sizes, shape
        if key not in _flops_by_shapes:
            _flops_by_shapes[key] = count(recipe, model, sizes, shape)
        return _flops_by_shapes[key]

    monkeypatch.setattr(flops, "_training_flops", count_once)


@pytest.fixture(scope="session")
def heedful_data() -> Path:
    """Return the folder of real corpora: $HEEDFUL_DATA, or shared/data beside the checkout."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("HEEDFUL_DATA", beside))
    if not folder.is_dir():
        pytest.skip(f"no corpora in {folder}; set HEEDFUL_DATA")
    return folder


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Thin large families of wide tests; skip GPU tests where there is no GPU."""
    thin_families(items)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items:
        import torch

        if not torch.cuda.is_available():
            for item in gpu_items:
                item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a tiny model that copies letters; the run folder is read-only."""
    from tests.commands import LETTERS, train_tiny

    with untraced():
        return train_tiny(tmp_path_factory.mktemp("trained") / "run", LETTERS)


@pytest.fixture
def copied(trained: Path, tmp_path: Path) -> Path:
    """Return a copy of the trained run that a test may damage."""
    import shutil

    return Path(shutil.copytree(trained, tmp_path / "run"))
