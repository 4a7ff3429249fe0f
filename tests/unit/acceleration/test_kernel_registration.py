"""Triton's kernels are registered where they can run."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

CODE = """
import heedful.models
from heedful.ops import OPS
print(sum(kernel.name == "triton" for op in OPS for kernel in op.kernels))
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="needs Triton")
@pytest.mark.parametrize(
    ("interprets", "is_registered"), [("1", True), ("0", torch.backends.cuda.is_built())]
)
def test_triton_kernels_need_a_gpu_build_or_the_interpreter(interprets, is_registered):
    environment = {**os.environ, "TRITON_INTERPRET": interprets}
    command = [sys.executable, "-c", CODE]
    completed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert (int(completed.stdout) > 0) == is_registered
