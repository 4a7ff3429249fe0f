"""Pretrained encoders: the states of a trained model as features of another one.

The model is a language model (Peters et al. 2018), a masked language model (Devlin et al. 2019) or
any other with an encoder, as a run or as a folder of Hugging Face. Invariant: features equal the
states of that model; only what is tuned changes.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, PositiveInt
from torch import Tensor, nn
from torch.nn.functional import pad
from typing_extensions import override

from heedful.attention.masks import padding_mask
from heedful.config import BaseConfig
from heedful.config.base import with_default_type
from heedful.errors import ConfigError, check, format_count
from heedful.layers.embeddings import TokenEmbedding
from heedful.layers.transformer import TransformerStack
from heedful.models.base import Encoder, EncoderOutput
from heedful.models.bytenet import DilatedEncoderConfig
from heedful.models.convolutional import ConvolutionalEncoderConfig
from heedful.models.language_model import BackboneOutput, CausalBackbone, LanguageModelConfig
from heedful.models.recurrent.encoder import RecurrentEncoderConfig
from heedful.models.transformer import TransformerEncoderConfig
from heedful.shapes import Float, Int, Lengths, SourceStates, SourceTokens
from heedful.storage.state_dict import load_into_model, unique_weights
from heedful.tokenization.vocabulary import BOS, NUM_SPECIAL_TOKENS, PAD

_NewEncoders = (
    RecurrentEncoderConfig
    | TransformerEncoderConfig
    | ConvolutionalEncoderConfig
    | DilatedEncoderConfig
)
NewEncoderConfig = Annotated[
    _NewEncoders, Field(discriminator="type"), with_default_type("recurrent")
]
"""Encoders with new parameters."""
PretrainedModelConfig = Annotated[_NewEncoders | LanguageModelConfig, Field(discriminator="type")]
"""What has states that can be features: an encoder, or a language model without its output head."""
_WHOLE, _TOP = ("frozen", "all"), "top-"


def find_stack(model: Encoder) -> TransformerStack | None:
    """Return the Transformer layers of an encoder, or None if it has others."""
    stack = getattr(getattr(model, "backbone", model), "stack", None)
    return stack if isinstance(stack, TransformerStack) else None


class CausalEncoder(Encoder):
    """A language model without its output head: a state has read its token and those before it."""

    def __init__(self, embedding: TokenEmbedding, backbone: CausalBackbone) -> None:
        super().__init__()
        self.embedding = embedding
        self.backbone = backbone
        self.output_size = backbone.output_size
        upper_sizes = [backbone.output_size] * (backbone.num_layers - 1)
        self.layer_input_sizes = (embedding.embedding_size, *upper_sizes)

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        layer_inputs: list[Tensor] | None = [] if self.returns_layer_inputs else None
        embedded = self.embedding(tokens)
        output: BackboneOutput = self.backbone(
            embedded,
            lengths,
            self.backbone.initial_state(embedded),
            need_state=False,
            layer_inputs=layer_inputs,
        )
        is_padding = ~padding_mask(lengths, tokens.size(1)).mT  # (B, S, 1)
        states = output.outputs.masked_fill(is_padding, 0)
        encoded = EncoderOutput(states, lengths, auxiliary_losses=output.auxiliary_losses)
        return encoded._replace(layer_inputs=tuple(layer_inputs or ()))


class ScalarMix(nn.Module):
    """gamma sum_j softmax(w)_j h_j  (ELMo; Peters et al. 2018, equation 1).

    At first w is zero and gamma one: the mean of the layers. The paper's sum begins with the token
    layer, j = 0; bilm-tf and AllenNLP repeat it to the size of the others, which are two directions
    wide. Here embeddings of another size are left out.
    """

    def __init__(self, num_layers: int) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(num_layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[SourceStates]) -> SourceStates:
        """Mix the states of all layers."""
        mixed = zip(self.weights.softmax(dim=0), layers, strict=True)
        zeros = torch.zeros_like(layers[0])
        return self.gamma * sum((weight * states for weight, states in mixed), start=zeros)


class PretrainedFeatures(nn.Module):
    """The states of a trained model at each token.

    What is not tuned stays as it is: in eval mode, without dropout and gradients. With
    `prepend_bos` the model reads BOS first, as it was trained to; that position is no feature.
    Auxiliary losses of the model are left out.
    """

    def __init__(
        self, model: Encoder, mix: ScalarMix | None, *, tune: str, dropout: float, prepend_bos: bool
    ) -> None:
        super().__init__()
        self.model = model
        self.mix = mix
        self.tune = tune
        self.dropout = nn.Dropout(dropout)
        self.prepend_bos = prepend_bos
        self.output_size = model.output_size
        model.returns_layer_inputs = mix is not None
        model.requires_grad_(False)
        for part in self._tuned_parts():
            part.requires_grad_()

    def _tuned_parts(self) -> list[nn.Module]:
        if self.tune in _WHOLE:
            return [self.model] if self.tune == "all" else []
        stack = find_stack(self.model)
        assert stack is not None, "layers to count from the top"
        parts: list[nn.Module] = [*stack.layers[-int(self.tune.removeprefix(_TOP)) :]]
        return [*parts, *([] if stack.norm is None else [stack.norm])]

    @override
    def train(self, mode: bool = True) -> "PretrainedFeatures":
        super().train(mode)
        self.model.eval()
        for part in self._tuned_parts():
            part.train(mode)
        return self

    @override
    def forward(self, tokens: Int[Tensor, "B S"]) -> SourceStates:
        with torch.set_grad_enabled(self.tune != "frozen" and torch.is_grad_enabled()):
            layers = self._layer_states(tokens)
        if self.mix is None:
            return self.dropout(layers[-1])
        return self.dropout(self.mix(layers).masked_fill((tokens == PAD).unsqueeze(-1), 0))

    def _layer_states(self, tokens: Int[Tensor, "B S"]) -> list[SourceStates]:
        """Return the states of the layers, bottom first; without a mix, only of the last."""
        num_added = int(self.prepend_bos)
        lengths = (tokens != PAD).sum(dim=1) + num_added
        output: EncoderOutput = self.model(pad(tokens, (num_added, 0), value=BOS), lengths)
        layers = [*output.layer_inputs, output.states]
        return [states[:, num_added:] for states in layers if states.size(-1) == self.output_size]


class FeatureEmbedding(nn.Module):
    """Features in place of an embedding table: W f + b of the size of the embeddings."""

    def __init__(self, features: PretrainedFeatures, embedding_dim: int) -> None:
        super().__init__()
        self.features = features
        self.projection = nn.Linear(features.output_size, embedding_dim)
        self.embedding_dim = embedding_dim

    @override
    def forward(self, tokens: Int[Tensor, "B S"]) -> Float[Tensor, "B S E"]:
        return self.projection(self.features(tokens))


class PretrainedEncoder(Encoder):
    """An encoder whose states are features, without further layers."""

    def __init__(self, features: PretrainedFeatures) -> None:
        super().__init__()
        self.features = features
        self.output_size = features.output_size

    @override
    def forward(self, tokens: SourceTokens, lengths: Lengths) -> EncoderOutput:
        return EncoderOutput(self.features(tokens), lengths)


class PretrainedEncoderConfig(BaseConfig):
    """The states of a trained model, as features (Peters et al. 2018; Devlin et al. 2019)."""

    type: Literal["pretrained"] = "pretrained"
    path: str
    """Run folder of a language model, or of any model with an encoder; or a Hugging Face folder of
    BERT, RoBERTa, DistilBERT, GPT-2 or another model that can be imported. Parameters and (source)
    tokenizer are copied when training starts; the folder is not needed afterwards."""
    layers: Literal["all"] | PositiveInt = "all"
    """Layers to keep, counted from the bottom."""
    tune: Annotated[str, Field(pattern=r"^(frozen|all|top-[1-9][0-9]*)$")] = "frozen"
    """Which pretrained parameters are trained, too: none (frozen), those of the top layers of a
    Transformer (top-2), or all. What is not trained has no dropout."""
    pool: Literal["last", "scalar-mix"] = "last"
    """States of the last layer, or a learned mix of all layers (ELMo; Peters et al. 2018)."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Dropout probability of the features."""
    encoder: NewEncoderConfig | None = None
    """Encoder that reads the features in place of token embeddings; null: they are the states."""
    model: PretrainedModelConfig | None = None
    """Architecture of the pretrained model; filled in when training starts."""
    prepend_bos: bool = False
    """Whether the model reads BOS before each text; filled in when training starts."""
    splits_words: bool = False
    """Whether words may have several tokens, the first of which stands for a word in taggers;
    filled in when training starts."""

    def build(self, *, vocab_size: int) -> Encoder:
        message, hint = "not filled in", "`heedful train` reads it from the folder of `path`"
        if self.model is None:
            raise ConfigError("model.encoder.model", message, hint)
        model = _build_model(self.model, vocab_size)
        self._check_tuned_layers(model)
        features = PretrainedFeatures(
            model,
            self._build_mix(model) if self.pool == "scalar-mix" else None,
            tune=self.tune,
            dropout=self.dropout,
            prepend_bos=self.prepend_bos,
        )
        if self.encoder is None:
            return PretrainedEncoder(features)
        encoder = self.encoder.build(vocab_size=NUM_SPECIAL_TOKENS)
        encoder.embedding.scale = 1.0  # of a table
        size = encoder.embedding.embedding.embedding_dim
        encoder.embedding.embedding = FeatureEmbedding(features, size)  # type: ignore[assignment]
        return encoder

    def _check_tuned_layers(self, model: Encoder) -> None:
        if self.tune in _WHOLE:
            return
        stack = find_stack(model)
        message = f"{self.tune!r} counts the layers of a Transformer, and this model has none"
        hint = "set it to 'frozen' or 'all'"
        check(stack is not None, "model.encoder.tune", message, hint)
        num_layers = len(stack.layers) if stack else 0
        message = f"is {self.tune!r}, but the model has {format_count(num_layers, 'layer')}"
        is_valid = int(self.tune.removeprefix(_TOP)) <= num_layers
        check(is_valid, "model.encoder.tune", message, "lower it, or set it to 'all'")

    def _build_mix(self, model: Encoder) -> ScalarMix:
        sizes = [*model.layer_input_sizes, model.output_size]
        message = f"that model (type: {self.model and self.model.type}) has one layer to mix"
        hint = "use a recurrent or Transformer model with several layers, or set pool to 'last'"
        num_layers = sizes.count(model.output_size)
        check(num_layers > 1, "model.encoder.pool", message, hint)
        return ScalarMix(num_layers)

    def with_model_of(self, model_config: Any) -> "PretrainedEncoderConfig":
        """Fill in the architecture of a run; raise ConfigError if it has no states to use."""
        model = model_config
        if not isinstance(model, LanguageModelConfig):
            model = getattr(model_config, "encoder", None)
        location = f"model.encoder.path={self.path}"
        has = f"has an encoder of type '{model.type}'" if model else "has no encoder"
        message = f"that model (type: {model_config.type}) {has}, so its states cannot be features"
        hint = "name a language model, or a model with an encoder trained from scratch"
        check(isinstance(model, _NewEncoders | LanguageModelConfig), location, message, hint)
        prepends = ("next_sentence_prediction", "prepend_bos")
        prepend_bos = any(getattr(model_config, name, False) for name in prepends)
        filled = {"model": self._keep_layers(model), "prepend_bos": prepend_bos}
        return self.model_copy(update=filled)

    def _keep_layers(self, model: Any) -> Any:
        """Return the architecture with the layers to keep."""
        if self.layers == "all":
            return model
        stack = model.backbone if isinstance(model, LanguageModelConfig) else model
        num_layers = getattr(stack, "num_layers", None)
        layers = format_count(num_layers or 0, "layer")
        message = f"is {self.layers}, but the model of {self.path} has {layers}"
        is_valid = num_layers is not None and self.layers <= num_layers
        check(is_valid, "model.encoder.layers", message, "lower it, or set it to 'all'")
        kept = stack.model_copy(update={"num_layers": self.layers})
        return kept if stack is model else model.model_copy(update={"backbone": kept})


def _build_model(config: BaseConfig, vocab_size: int) -> Encoder:
    if not isinstance(config, LanguageModelConfig):
        assert isinstance(config, _NewEncoders), type(config)
        return config.build(vocab_size=vocab_size)
    embedding = config.build_embedding(vocab_size, scale_embeddings=config.scale_embeddings)
    return CausalEncoder(embedding, config.backbone.build(input_size=embedding.embedding_size))


def load_pretrained_weights(
    model: nn.Module, weights: Mapping[str, Tensor], *, location: str
) -> None:
    """Load the parameters of a run into the features: of its encoder, or of its language model.

    A masked language model has one more token, the mask symbol, which comes last.
    """
    (features,) = (part for part in model.modules() if isinstance(part, PretrainedFeatures))
    prefix = "" if isinstance(features.model, CausalEncoder) else "encoder."
    selected: dict[str, Tensor] = {}
    for name, expected in unique_weights(features.model).items():
        if (weight := weights.get(prefix + name)) is not None:
            is_table = name == "embedding.embedding.weight"
            selected[name] = weight[: len(expected)] if is_table else weight
    load_into_model(features.model, selected, location=location)
