"""Agreement: which choices of a decoder make no sense together?

Each refusal says where, why, and what to choose instead.
"""

from __future__ import annotations

from heedful.attention.choices.attention import AttentionConfig
from heedful.decoders.bridges import BridgeConfig, ZerosBridgeConfig
from heedful.decoders.emission import EmissionConfig, VocabularyEmissionConfig
from heedful.decoders.outputs import NoOutputConfig
from heedful.decoders.parts import RecurrentParts
from heedful.decoders.recurrent import RecurrentDecoder
from heedful.decoders.wiring import Attending
from heedful.decoders.wiring_choices import FinalStateConfig, StepThenAttendConfig, WiringConfig
from heedful.errors import ConfigError


def require_agreement(
    parts: RecurrentParts,
    bridge: BridgeConfig,
    wiring: WiringConfig,
    emission: EmissionConfig,
    decoder: RecurrentDecoder,
) -> None:
    """Refuse choices that make no sense together, for a decoder that was built by them."""
    _require_a_source(bridge, wiring)
    if isinstance(decoder.wiring, Attending):
        _require_a_hearing(parts, wiring)
        _require_one_kind_of_context(parts, wiring, emission, decoder)
    else:
        _require_no_questions(parts, wiring, emission)


def _require_a_source(bridge: BridgeConfig, wiring: WiringConfig) -> None:
    """Refuse a decoder that learns nothing of the source."""
    if isinstance(wiring, FinalStateConfig) and isinstance(bridge, ZerosBridgeConfig):
        raise ConfigError(
            "bridge.kind",
            f"under {wiring.kind!r} the first state is all that is known of the source, but "
            f"{bridge.kind!r} leaves it empty",
            "choose another bridge, such as 'tanh', or another wiring",
        )


def _require_a_hearing(parts: RecurrentParts, wiring: WiringConfig) -> None:
    """Refuse to ask where nobody hears the answer."""
    if isinstance(wiring, StepThenAttendConfig) and isinstance(parts.output, NoOutputConfig):
        raise ConfigError(
            "output.kind",
            f"under {wiring.kind!r} the output alone hears the context, but {parts.output.kind!r} "
            "leaves it out",
            "choose 'tanh', 'maxout' or 'plain', or another wiring",
        )


def _require_no_questions(
    parts: RecurrentParts, wiring: WiringConfig, emission: EmissionConfig
) -> None:
    """Refuse settings of attention, and what needs it, where nothing asks."""
    if parts.attention != AttentionConfig():
        raise ConfigError(
            "attention",
            f"under {wiring.kind!r} nothing is asked, so these settings would have no effect",
            "leave the section out, or choose another wiring, such as 'attend-then-step'",
        )
    if not isinstance(emission, VocabularyEmissionConfig):
        raise ConfigError(
            "emission.kind",
            f"the {emission.kind!r} emission goes by where was looked, but under {wiring.kind!r} "
            "nothing is looked at",
            "choose 'vocabulary', or another wiring, such as 'step-then-attend'",
        )


def _require_one_kind_of_context(
    parts: RecurrentParts,
    wiring: WiringConfig,
    emission: EmissionConfig,
    decoder: RecurrentDecoder,
) -> None:
    """Refuse parts of which one keeps places apart and another wants them together."""
    assert isinstance(decoder.wiring, Attending)
    attention, wants_places = decoder.wiring.attention, decoder.emission.is_per_position
    read, align = parts.attention.read.kind, parts.attention.align.kind
    if wants_places and not attention.read.is_per_position:
        raise ConfigError(
            "attention.read.kind",
            f"the {emission.kind!r} emission lets every place say a token, but the {read!r} "
            "readout gives it one context for all",
            "choose the readout 'per-position', or the emission 'vocabulary'",
        )
    if not attention.read.is_per_position:
        return
    if not wants_places:
        raise ConfigError(
            "emission.kind",
            f"the {read!r} readout keeps every place apart, but the {emission.kind!r} emission "
            "wants one context for all",
            "choose the emission 'marginal', or the readout 'expectation'",
        )
    _require_no_feedback(wiring)
    if attention.align.leaks:
        raise ConfigError(
            "attention.align.kind",
            f"the {emission.kind!r} emission shares out its probability by the weights, but those "
            f"of {align!r} may sum to less than one",
            "choose 'monotonic-marginal' or 'softmax'",
        )


def _require_no_feedback(wiring: WiringConfig) -> None:
    """Refuse to put a context, or features, for every place into a cell that reads one."""
    if not isinstance(wiring, StepThenAttendConfig):
        raise ConfigError(
            "wiring.kind",
            f"under {wiring.kind!r} the cell reads the context, but the readout keeps one for "
            "every place",
            "choose 'step-then-attend' with `input_feeding: false`",
        )
    if wiring.input_feeding:
        raise ConfigError(
            "wiring.input_feeding",
            "features cannot be fed back where the readout keeps them for every place",
            "set it to false",
        )
