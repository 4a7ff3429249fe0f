"""heedful: sequence models with attention in PyTorch.

    heedful.train("latin-demo", "runs/demo")
    heedful.evaluate("runs/demo")
    heedful.load("runs/demo").translate("Caecilius est in horto.")

Importing heedful does not import torch; the first use of `train`, `evaluate` or `load` does.
"""

import sys
from typing import TYPE_CHECKING, Any

from heedful.openmp import configure_threads
from heedful.version import VERSION

if TYPE_CHECKING:
    from heedful.client import Client
    from heedful.experiment.evaluation import evaluate
    from heedful.experiment.train import train_or_interrupt as train
    from heedful.runs import load, load_as

__version__ = VERSION
__all__ = ["Client", "__version__", "evaluate", "load", "load_as", "train"]

if "torch" not in sys.modules:
    configure_threads()


def __getattr__(name: str) -> Any:
    if name == "Client":
        from heedful.client import Client

        return Client
    if name == "evaluate":
        from heedful.experiment.evaluation import evaluate

        return evaluate
    if name in ("load", "load_as"):
        from heedful import runs

        return getattr(runs, name)
    if name == "train":
        from heedful.experiment.train import train_or_interrupt

        return train_or_interrupt
    raise AttributeError(f"module 'heedful' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
