"""Models as graphs of tensors: an encoder and a decoder step, or one step of a language model.

Graphs are captured by torch.export with a dynamic batch size and dynamic lengths; a recurrence is
one `scan`. The state that goes from step to step is a list of named tensors. Invariant: encoder
and steps give what `initial_state` and `step` of the model give, for other sizes than those of
the examples, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from typing_extensions import override

from heedful.conversion.graph_capture import capture
from heedful.data.text.batching import Batch, SourceBatch
from heedful.data.text.token_stream import LMBatch
from heedful.layers.mixture_of_experts import MixtureOfExperts
from heedful.layers.self_attention import BlockSelfAttention
from heedful.layers.self_attentive_cells import SelfAttentiveCellBase
from heedful.models.base import Seq2SeqModel
from heedful.models.bytenet import DilatedDecoder
from heedful.models.encoder_decoder import EncoderDecoderModel
from heedful.models.language_model import LanguageModel
from heedful.models.output_heads import log_softmax
from heedful.models.recurrent.decoder import RecurrentDecoder
from heedful.pytree import map_tensors
from heedful.tasks.prediction import LoadedRun
from heedful.tasks.task_data import VocabSizes
from heedful.tokenization.vocabulary import BOS, EOS, NUM_SPECIAL_TOKENS, PAD, UNK

SOURCE_TOKENS, SOURCE_LENGTHS = "source_tokens", "source_lengths"
TOKENS, LOG_PROBS, WEIGHTS = "tokens", "log_probs", "attention_weights"
SPECIAL_IDS = {"pad": PAD, "unk": UNK, "bos": BOS, "eos": EOS}
BATCH, SOURCE, STEPS = "batch", "source", "steps"  # names of dynamic sizes


class StateTensor(NamedTuple):
    """A tensor of the state between two steps."""

    name: str  # the path in the state of the model
    dtype: torch.dtype
    shape: tuple[int | str, ...]  # a dynamic size has a name
    is_constant: bool  # a step returns it unchanged, as it does the encoded source

    @property
    def dynamic_shape(self) -> dict[int, Any]:
        """The dynamic dimensions, for torch.export."""
        return {
            index: Dim.DYNAMIC for index, size in enumerate(self.shape) if isinstance(size, str)
        }


class ModelGraphs(NamedTuple):
    """Captured graphs; a state tensor that the encoder does not return begins as zeros.

    Its steps are then 0.
    """

    encoder: ExportedProgram | None  # None for a language model
    step: ExportedProgram
    encoder_outputs: list[str]
    """Names of the state tensors that the encoder returns, in their order."""
    state: list[StateTensor]

    @property
    def step_inputs(self) -> list[str]:
        """Names of the inputs of a step, in their order."""
        return [TOKENS, *(tensor.name for tensor in self.state)]

    @property
    def step_outputs(self) -> list[str]:
        """Names of the outputs of a step; those of the next state begin with `next.`."""
        changed = [f"next.{tensor.name}" for tensor in self.state if not tensor.is_constant]
        return [LOG_PROBS, *([] if self.encoder is None else [WEIGHTS]), *changed]


class EncoderGraph(nn.Module):
    """Source tokens and lengths to the first state."""

    def __init__(self, model: Seq2SeqModel) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, ...]:
        state = self.model.initial_state(SourceBatch(tokens, lengths))
        return tuple(tensor for _, tensor in named_tensors(state))


class StepGraph(nn.Module):
    """Tokens and state to log-probabilities, attention weights and the changed state."""

    def __init__(self, model: nn.Module, example_state: Any, is_constant: Sequence[bool]) -> None:
        super().__init__()
        self.model = model
        self.example_state = example_state
        self.is_constant = is_constant

    @override
    def forward(self, tokens: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        remaining = iter(state)
        nested = map_tensors(lambda _: next(remaining), self.example_state)
        outputs, next_state = run_step(self.model, tokens, nested)
        tensors = [tensor for _, tensor in named_tensors(next_state)]
        pairs = zip(tensors, self.is_constant, strict=True)
        return (*outputs, *(tensor for tensor, is_constant in pairs if not is_constant))


def run_step(model: Any, tokens: Tensor, state: Any) -> tuple[list[Tensor], Any]:
    """Return the outputs of a step and the next state; a language model reads several tokens."""
    if isinstance(model, LanguageModel):
        hidden, next_state = model.advance(tokens, state)
        return [log_softmax(model.lm_head(hidden))], next_state
    output = model.step(tokens, state)
    return [output.log_probs, output.weights], output.state


def continue_prompts(
    model: LanguageModel, prompts: Sequence[Sequence[int]], num_tokens: int
) -> list[list[int]]:
    """Return the most likely next tokens after each prompt, one step at a time."""
    outputs: list[list[int]] = []
    for prompt in prompts:
        tokens = torch.tensor([prompt])
        output: list[int] = []
        state = model.initial_state(tokens)
        with torch.inference_mode():
            for _ in range(num_tokens):
                [log_probs], state = run_step(model, tokens, state)
                output.append(int(log_probs[0, -1].argmax()))
                tokens = torch.tensor([output[-1:]])
        outputs.append(output)
    return outputs


def named_tensors(state: Any, path: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield each tensor of a nested state with its path, such as `wiring.cells.0.0`."""
    if isinstance(state, Tensor):
        yield path, state
    elif state is not None:
        for name, part in zip(getattr(state, "_fields", range(len(state))), state, strict=True):
            yield from named_tensors(part, f"{path}.{name}" if path else str(name))


def capture_graphs(model: nn.Module, vocab_sizes: VocabSizes) -> ModelGraphs:
    """Capture the graphs of a model with a source, or of a language model."""
    examples = _Examples(model, vocab_sizes)
    tensors, is_constant = examples.describe_state()
    state = examples.state(3, 5, 2)
    tokens = examples.tokens(3, 3) if isinstance(model, LanguageModel) else examples.tokens(3)
    step = capture(
        StepGraph(model, state, is_constant),
        (tokens, *(tensor for _, tensor in named_tensors(state))),
        (
            dict.fromkeys(range(tokens.dim()), Dim.DYNAMIC),
            tuple(tensor.dynamic_shape for tensor in tensors),
        ),
    )
    if isinstance(model, LanguageModel):
        return ModelGraphs(None, step, [], tensors)
    assert isinstance(model, Seq2SeqModel)
    dynamic = dict.fromkeys((0,) if examples.image_shape else (0, 1), Dim.DYNAMIC)
    sources = examples.sources(3, 5)
    encoder = capture(EncoderGraph(model), tuple(sources), (dynamic, {0: Dim.DYNAMIC}))
    names = [name for name, _ in named_tensors(examples.first_state(3, 5))]
    return ModelGraphs(encoder, step, names, tensors)


class ClassifierGraph(nn.Module):
    """Source tokens and lengths to log-probabilities of labels."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        return self.model.classify(SourceBatch(tokens, lengths))[0]


class TaggerGraph(nn.Module):
    """Words, or rows of a word and its characters, and their numbers to scores of tags."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, words: Tensor, lengths: Tensor) -> Tensor:
        return self.model.output_projection(self.model.encoder(words, lengths).states)


def capture_labels(
    graph: ClassifierGraph | TaggerGraph, vocab_sizes: VocabSizes, row_size: int | None = None
) -> ExportedProgram:
    """Capture a model that labels texts, or words; with a row size words have characters."""
    tokens, lengths = _Examples(graph.model, vocab_sizes).sources(3, 5)
    if row_size is not None:
        characters = torch.ones(*tokens.shape, row_size - 1, dtype=torch.long)
        tokens = torch.cat([tokens.unsqueeze(-1), characters], dim=-1)
    both = dict.fromkeys((0, 1), Dim.DYNAMIC)
    return capture(graph, (tokens, lengths), (both, {0: Dim.DYNAMIC}))


class ForwardGraph(nn.Module):
    """Tokens to log-probabilities with teacher forcing, as the `forward` of the model."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    @override
    def forward(self, *inputs: Tensor) -> Tensor:
        if isinstance(self.model, LanguageModel):
            (tokens,) = inputs
            return self.model(LMBatch(tokens, tokens)).log_probs
        source_tokens, lengths, decoder_inputs = inputs
        sources = SourceBatch(source_tokens, lengths)
        return self.model(Batch(sources, decoder_inputs, decoder_inputs)).log_probs


class RecurrentForwardGraph(nn.Module):
    """The same for a decoder that reads token by token: one `scan` over its steps."""

    def __init__(self, model: nn.Module, example_state: Any) -> None:
        super().__init__()
        self.model = model
        self.example_state = example_state

    @override
    def forward(self, tokens: Tensor, lengths: Tensor, decoder_inputs: Tensor) -> Tensor:
        from torch._higher_order_ops.scan import scan

        model: Any = self.model
        first = model.initial_state(SourceBatch(tokens, lengths))

        def step(carried: tuple[Tensor, ...], tokens: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            remaining = iter(carried)
            nested = map_tensors(lambda _: next(remaining), self.example_state)
            output = model.step(tokens, nested)
            after = tuple(tensor.clone() for _, tensor in named_tensors(output.state))
            return after, output.log_probs

        carried = tuple(tensor for _, tensor in named_tensors(first))
        return scan(step, carried, decoder_inputs, dim=1)[1]


def capture_forward(model: nn.Module, vocab_sizes: VocabSizes) -> ExportedProgram:
    """Capture the plain model, for known targets of any length."""
    examples = _Examples(model, vocab_sizes)
    tokens = examples.tokens(3, 4)
    both = dict.fromkeys((0, 1), Dim.DYNAMIC)
    if isinstance(model, LanguageModel):
        return capture(ForwardGraph(model), (tokens,), ((both,),))
    inputs = (*examples.sources(3, 5), tokens)
    if _is_recurrent(model):
        graph = RecurrentForwardGraph(model, examples.state(3, 5, 1))
        return capture(graph, inputs, (both, {0: Dim.DYNAMIC}, both))
    return capture(ForwardGraph(model), inputs, ((both, {0: Dim.DYNAMIC}, both),))


def _is_recurrent(model: nn.Module) -> bool:
    return isinstance(model, EncoderDecoderModel) and isinstance(model.decoder, RecurrentDecoder)


def why_no_graphs(run: LoadedRun) -> str | None:
    """Return why a run has no graphs; None if it has."""
    model = run.model
    if not isinstance(model, LanguageModel | Seq2SeqModel):
        return f"only translation and language models have graphs, but it {_description(run)}"
    if isinstance(model, EncoderDecoderModel) and model.encoder.grid is not None:
        return f"only texts can be sources, but it {_description(run)}"
    return unsupported_part(run)


def unsupported_part(run: LoadedRun) -> str | None:
    """Return why a part of a run cannot be captured; None if all can."""
    if run.tokenizers.target.is_open:
        return "its target vocabulary is open: each source adds tokens to it"
    for module_type, reason in _UNSUPPORTED.items():
        if any(isinstance(module, module_type) for module in run.model.modules()):
            return reason
    return None


def why_no_forward(run: LoadedRun) -> str | None:
    """Return why the plain model cannot be captured as a whole; None if it can."""
    if any(isinstance(module, BlockSelfAttention) for module in run.model.modules()):
        return "its attention in blocks would be limited to the length of capturing"
    if not _is_recurrent(run.model):
        return None
    examples = _Examples(run.model, VocabSizes.from_tokenizers(run.tokenizers))
    states = examples.first_state(3, 5), *(examples.state(3, 5, count) for count in (1, 2))
    shapes = [[(name, tensor.shape) for name, tensor in named_tensors(state)] for state in states]
    is_constant = shapes[0] == shapes[1] == shapes[2]
    return None if is_constant else "its recurrent decoder has a state that grows with each step"


def _description(run: LoadedRun) -> str:
    return str(run.config.task.description)


_HISTORY = "its recurrent cells attend to all their earlier states, which grow in a graph"
_UNSUPPORTED: dict[type[nn.Module], str] = {
    SelfAttentiveCellBase: _HISTORY,
    DilatedDecoder: "ByteNet's decoder rounds a multiple of the source length",
    MixtureOfExperts: "how many tokens each expert gets depends on their values",
}


def model_info(graphs: ModelGraphs) -> dict[str, Any]:
    """Return special tokens and state tensors for programs that run the graphs."""
    state = [
        {
            "name": tensor.name,
            "type": str(tensor.dtype).removeprefix("torch."),
            "shape": list(tensor.shape),
            "is_constant": tensor.is_constant,
        }
        for tensor in graphs.state
    ]
    names = {"step_inputs": graphs.step_inputs, "step_outputs": graphs.step_outputs}
    return {**SPECIAL_IDS, "encoder_outputs": graphs.encoder_outputs, **names, "state": state}


class _Examples:
    """Random inputs of a model, and the states that it has after them."""

    def __init__(self, model: Any, vocab_sizes: VocabSizes) -> None:
        self.model, self.vocab_sizes = model, vocab_sizes
        self.generator = torch.Generator().manual_seed(0)
        self.image_shape = getattr(getattr(model, "encoder", None), "image_shape", None)

    def tokens(self, *shape: int) -> Tensor:
        """Return random tokens of targets, or of a language model."""
        return self._random(self.vocab_sizes.target, shape)

    def sources(self, batch_size: int, length: int) -> SourceBatch:
        """Return texts, or images, which have one size."""
        if self.image_shape is not None:
            shape = (batch_size, *self.image_shape[:3])
            pixels = torch.randint(256, shape, generator=self.generator).byte()
            return SourceBatch(pixels, torch.full((batch_size,), prod(self.model.encoder.grid)))
        lengths = length - torch.arange(batch_size) % 2  # of two lengths
        return SourceBatch(self._random(self.vocab_sizes.source, (batch_size, length)), lengths)

    def _random(self, vocab_size: int, shape: tuple[int, ...]) -> Tensor:
        low = min(NUM_SPECIAL_TOKENS, vocab_size - 1)
        return torch.randint(low, vocab_size, shape, generator=self.generator)

    def first_state(self, batch_size: int, source_length: int) -> Any:
        with torch.no_grad():
            if isinstance(self.model, LanguageModel):
                return self.model.initial_state(self.tokens(batch_size, 1))
            return self.model.initial_state(self.sources(batch_size, source_length))

    def state(self, batch_size: int, source_length: int, num_steps: int) -> Any:
        return self.states(batch_size, source_length, num_steps)[-1]

    def states(self, batch_size: int, source_length: int, num_steps: int) -> list[Any]:
        states = [self.first_state(batch_size, source_length)]
        shape = (batch_size, 1) if isinstance(self.model, LanguageModel) else (batch_size,)
        with torch.no_grad():
            for _ in range(num_steps):
                states.append(run_step(self.model, torch.full(shape, BOS), states[-1])[1])
        return states

    def describe_state(self) -> tuple[list[StateTensor], list[bool]]:
        """Find dynamic sizes by running the model with other sizes, one at a time."""
        previous, base = ([*named_tensors(state)] for state in self.states(3, 5, 2)[-2:])
        changed = {
            BATCH: self.state(4, 5, 2),
            SOURCE: self.state(3, 7, 2),
            STEPS: self.state(3, 5, 4),
        }
        others = {label: [*named_tensors(state)] for label, state in changed.items()}
        is_constant = [
            before is after for (_, before), (_, after) in zip(previous, base, strict=True)
        ]
        tensors = []
        for index, (name, tensor) in enumerate(base):
            shape: list[int | str] = list(tensor.shape)
            for label, values in others.items():
                assert values[index][0] == name, "the parts of the state depend on sizes"
                sizes = values[index][1].shape
                for dim, size in enumerate(tensor.shape):
                    if sizes[dim] != size:
                        shape[dim] = label
            tensors.append(StateTensor(name, tensor.dtype, tuple(shape), is_constant[index]))
        return tensors, is_constant
