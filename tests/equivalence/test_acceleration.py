"""Every kernel and every replacement module gives what the plain code gives.

Each is compared on models of the catalogue that use it; one that no model uses fails.
"""

import subprocess
import sys
from functools import cache
from unittest.mock import Mock

import pytest
import torch
from torch import nn

from heedful.acceleration import registry, tuning
from heedful.acceleration.registry import (
    FOR_INFERENCE,
    FOR_TRAINING,
    accelerate,
    accelerate_for_training,
)
from heedful.data.text.token_stream import LMBatch
from heedful.models.language_model import LanguageModelConfig
from heedful.models.output_heads import negative_log_likelihood
from heedful.ops import OPS
from heedful.pytree import select_rows
from heedful.search import BeamSearchOptions, LengthPenalty
from tests.catalogue import SYSTEMS, VOCABULARY, batch, build, store
from tests.shape_checking import unchecked

pytestmark = pytest.mark.wide

LANGUAGE_MODEL = "language model"
VARIED = [
    *("lstm, step-then-attend", "gru, attend-then-step"),
    *("prefix LM, lstm", "prefix LM, gru", "prefix LM, rnn", "prefix LM, two layers"),
    *("transformer", "transformer, pre-norm", "transformer, span compressed"),
    *("transformer, score relative-key", "decoder only, span full", "decoder only, span pairs"),
]
"""Tried first; the rest of the catalogue follows."""
NAMES = [
    *VARIED,
    LANGUAGE_MODEL,
    *(name for name in SYSTEMS if name not in VARIED),
]
MAX_MATCHES = 2
CPU = torch.device("cpu")
EXAMPLES = batch(store(), [0, 3, 5, 6])
# Whole models are slow in Triton's interpreter: test_triton_*.py and test_training_kernels.py
# compare these.
ON_GPU = {"triton", "deferred"}
# Training alone, at random: test_cpu_training.py compares these.
IN_TRAINING = {"16-bit", "deferred on CPU"}
ON_CPU = [entry for entry in FOR_INFERENCE if "cpu" in entry.device_types]
KERNELS = [
    (op, kernel) for op in OPS for kernel in op.kernels if kernel.name not in ON_GPU | IN_TRAINING
]


@pytest.fixture(autouse=True)
def small_thresholds(monkeypatch):
    """Thresholds so small that the models of the catalogue exceed them; shapes are not checked."""
    monkeypatch.setattr(tuning, "MAX_UNCHUNKED_ELEMENTS", 0)
    monkeypatch.setattr(tuning, "QUERY_CHUNK_SIZE", 2)
    monkeypatch.setattr(tuning, "CANDIDATE_CHUNK_SIZE", 2)
    monkeypatch.setattr(tuning, "MIN_PACKED_ROWS", 2)
    with unchecked():
        yield


def build_model(name):
    if name != LANGUAGE_MODEL:
        return build(name)
    torch.manual_seed(1)
    backbone = {"type": "transformer", "hidden_size": 8, "num_layers": 2}
    backbone["attention"] = {"multi_head": {"num_heads": 2}, "score": {"type": "scaled-dot"}}
    config = LanguageModelConfig.model_validate({"embedding_size": 8, "backbone": backbone})
    return config.build(source_vocab_size=VOCABULARY, target_vocab_size=VOCABULARY).double().eval()


def values_and_gradients(model):
    """Log-probabilities of known targets and the gradients of all parameters."""
    model.zero_grad()
    log_probs = model(EXAMPLES).log_probs
    (log_probs * log_probs.detach().cos()).sum().backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return log_probs.detach(), [each for each in gradients if each is not None]


@torch.no_grad()
def steps(model, state):
    """Log-probabilities and weights of steps between which the beam is widened and reordered."""
    outputs = []
    tokens = torch.tensor([4, 5, 6, 7])
    for parents in ([0, 0, 1, 1, 2, 2, 3, 3], [1, 0, 2, 2, 5, 4, 7, 6], [0, 1, 4, 5], [2, 3, 0]):
        step = model.step(tokens, state)
        outputs.append((step.log_probs, step.weights))
        state = select_rows(step.state, torch.tensor(parents))
        tokens = torch.arange(len(parents)) % 5 + 4
    return outputs


def hypotheses(model, beam_size):
    results = model.search(
        EXAMPLES.sources,
        beam_size=beam_size,
        max_lengths=torch.tensor([4, 6, 3, 5]),
        length_penalty=LengthPenalty(),
        options=BeamSearchOptions(),
    )
    return [[(each.tokens, each.score) for each in outputs] for outputs in results]


def outputs(model):
    """Everything that a fast path may compute, of one model."""
    if isinstance(model, nn.Module) and not hasattr(model, "search"):
        with torch.no_grad():
            prompt = EXAMPLES.sources.tokens[:, :2]
            return steps(model, model.encode_prompt(prompt))
    with torch.no_grad():
        initial_state = model.initial_state(EXAMPLES.sources)
    return (
        values_and_gradients(model),
        steps(model, initial_state),
        [hypotheses(model, beam_size) for beam_size in (1, 2)],
    )


def use_kernels(monkeypatch, *kernels):
    """Keep these kernels alone."""
    for op in OPS:
        monkeypatch.setattr(op, "kernels", [kernel for owner, kernel in kernels if owner is op])


@pytest.mark.parametrize(
    ("op", "kernel"), KERNELS, ids=[f"{op.__name__}-{kernel.name}" for op, kernel in KERNELS]
)
def test_kernel_equals_reference(op, kernel, monkeypatch):
    num_matches = 0
    for name in NAMES:
        model, calls = build_model(name), Mock(side_effect=kernel.run)
        use_kernels(monkeypatch, (op, kernel._replace(run=calls)))
        actual = outputs(model)
        if not calls.called:
            continue
        use_kernels(monkeypatch)
        torch.testing.assert_close(actual, outputs(model))
        num_matches += 1
        if num_matches == MAX_MATCHES:
            return
    assert num_matches, "no model of the catalogue uses this kernel"


@cache
def accelerated_types(name):
    return {type(module) for module in accelerate(build_model(name), CPU).modules()}


@pytest.mark.parametrize(
    "acceleration", ON_CPU, ids=lambda acceleration: acceleration.replacement.__name__
)
def test_replacement_equals_original(acceleration):
    num_matches = 0
    for name in NAMES:
        if acceleration.replacement not in accelerated_types(name):
            continue
        model = build_model(name)
        accelerated = accelerate(model, CPU)
        expected = outputs(model)
        torch.testing.assert_close(outputs(accelerated), expected)
        num_matches += 1
        if num_matches == MAX_MATCHES:
            return
    assert num_matches, "no model of the catalogue has a module that this replaces"


@cache
def training_types(name):
    return {type(module) for module in accelerate_for_training(build_model(name), CPU).modules()}


@pytest.mark.parametrize(
    "acceleration",
    [entry for entry in FOR_TRAINING if "cpu" in entry.device_types],
    ids=lambda acceleration: acceleration.replacement.__name__,
)
def test_replacement_for_training_equals_original(acceleration, monkeypatch):
    monkeypatch.setattr(tuning, "MIN_DROPOUT_ELEMENTS", 1)
    monkeypatch.setattr(tuning, "MIN_DEFERRED_LOGITS", 1)
    name = next(name for name in NAMES if acceleration.replacement in training_types(name))
    model = build_model(name).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    examples, results = EXAMPLES, []
    if name == LANGUAGE_MODEL:
        tokens = EXAMPLES.sources.tokens
        examples = LMBatch(tokens[:, :-1], tokens[:, 1:])
    for form in (model, accelerate_for_training(model, CPU)):
        torch.manual_seed(0)
        loss = negative_log_likelihood(form(examples).log_probs, examples.targets, 0.1)
        parameters = list(model.parameters())
        grads = torch.autograd.grad(loss, parameters, allow_unused=True, materialize_grads=True)
        results.append((loss, grads))
    torch.testing.assert_close(*results)


COMPILED = """
import torch
from tests.catalogue import batch, build, store

examples = batch(store(), [0, 3, 5, 6])
torch._dynamo.config.allow_rnn = True  # torch's own layers
for name in ("transformer", "decoder only, span full", "lstm, step-then-attend"):
    model = build(name)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(examples).log_probs, model(examples).log_probs)
"""


@pytest.mark.wide
def test_plain_models_compile_without_graph_break():
    # In a process of its own: the compiler does not trace checks of shapes.
    done = subprocess.run([sys.executable, "-c", COMPILED], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()[-2000:]


@pytest.mark.parametrize("name", ["lstm, step-then-attend", "transformer", LANGUAGE_MODEL])
def test_everything_works_without_accelerations(name, monkeypatch):
    model = build_model(name)
    expected = outputs(accelerate(model, CPU))
    monkeypatch.setattr(registry, "FOR_INFERENCE", ())
    use_kernels(monkeypatch)
    assert accelerate(model, CPU) is model
    torch.testing.assert_close(outputs(model), expected)
