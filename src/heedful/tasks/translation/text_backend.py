"""The backend of searches of which only texts are needed: CTranslate2, or heedful's search.

Invariant: with `decoding.backend: auto` the texts are those of our own search.
"""

from collections.abc import Sequence

import torch
from torch import nn

from heedful.acceleration import ct2
from heedful.acceleration.precision import Int8Linear
from heedful.decoding.config import DecodingConfig
from heedful.decoding.requests import EncodedRequest
from heedful.errors import check

_LOCATION = "--backend"
_SETTINGS = (  # that must be at their defaults
    *("n_best", "coverage_penalty", "diversity", "pruning", "min_length", "min_length_ratio"),
    *("sampling", "mbr", "no_repeat_ngram_size", "repetition_penalty", "required_phrases"),
    *("forbidden_phrases", "unk_replacement", "suppress_tokens", "forced_bos_token_id"),
)


class TextBackend:
    """Finds best outputs through CTranslate2, if the settings choose it and the model allows it."""

    def __init__(self, model: object, config: DecodingConfig, device: torch.device | str) -> None:
        self._model, self._device = model, torch.device(device)
        self._search: ct2.CTranslate2Search | None = None
        self._is_required = config.backend == "ct2"
        reason = self._why_unavailable()
        hint = "pip install 'heedful[ct2]'" if not ct2.is_installed() else "leave it out"
        check(not self._is_required or reason is None, _LOCATION, reason or "", hint)
        self.is_available = config.backend != "torch" and reason is None

    def find_best(
        self, requests: Sequence[EncodedRequest], config: DecodingConfig
    ) -> list[list[int] | None]:
        """Return the tokens of each output, or None where our own search must find them."""
        setting = _unsupported_setting(config)
        message = f"CTranslate2 does not have decoding.{setting} as we define it"
        check(not self._is_required or setting is None, _LOCATION, message, "leave out one of both")
        options = ct2.BeamOptions(
            config.beam_size, config.length_penalty.build(), config.stopping.build()
        )
        can_search = self.is_available and setting is None
        is_free = not any(
            request.target is not None or request.request.has_constraints for request in requests
        )
        if not can_search or not is_free or not (self._is_required or self._is_exact(options)):
            return [None] * len(requests)
        if self._search is None:
            compute_type = "int8" if self._is_int8 else "float32"
            self._search = ct2.CTranslate2Search(self._model, compute_type=compute_type)  # type: ignore[arg-type]
        sources = [request.source for request in requests]
        return self._search.find_best(
            sources, [request.max_length for request in requests], options
        )

    def _is_exact(self, options: ct2.BeamOptions) -> bool:
        return options.is_exact and not self._is_int8

    @property
    def _is_int8(self) -> bool:
        modules = self._model.modules() if isinstance(self._model, nn.Module) else ()
        return any(isinstance(module, Int8Linear) for module in modules)

    def _why_unavailable(self) -> str | None:
        if not ct2.is_installed():
            return "CTranslate2 is not installed"
        if self._device.type != "cpu":
            return f"CTranslate2 runs on the CPU here, but the device is {self._device.type!r}"
        if not isinstance(self._model, nn.Module):
            return "CTranslate2 cannot run an ensemble or shallow fusion"
        if any(parameter.dtype != torch.float32 for parameter in self._model.parameters()):
            return "CTranslate2 runs in fp32 or int8 here"
        reason = ct2.unsupported_reason(self._model)
        return reason and f"CTranslate2 cannot run this model: {reason}"


def _unsupported_setting(config: DecodingConfig) -> str | None:
    """Return the first setting that CTranslate2 does not have, or defines in another way."""
    default = DecodingConfig()
    changed = (name for name in _SETTINGS if getattr(config, name) != getattr(default, name))
    return next(changed, None)
