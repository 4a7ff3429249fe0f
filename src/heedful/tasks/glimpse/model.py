"""The recurrent attention model: glimpse, core, location and action networks, trained by REINFORCE.

A model takes a fixed number of glimpses, or learns when to stop, and classifies the image by its
last state. Every row takes all steps; those after its stop are masked, so shapes never depend on
values and a training step can be captured as a CUDA graph. Invariants: a prediction does not depend
on the batch; for any baseline the expected gradient of the policies is that of the expected reward.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, Self

import torch
from pydantic import Field, NonNegativeFloat, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from heedful.config import BaseConfig
from heedful.data.images.labeled_images import MAX_CANVAS_SIZE, LabeledImageBatch
from heedful.errors import check
from heedful.layers.glimpses import GlimpseSensor
from heedful.layers.initialization import DefaultInitConfig, InitConfig
from heedful.layers.rnn_cells import LSTMCell, RecurrentState
from heedful.shapes import Float, Hidden, Int, Losses
from heedful.tasks.glimpse.policies import (
    NUM_UNIFORM,
    GaussianLocationPolicyConfig,
    LocationPolicy,
    LocationPolicyConfig,
    StoppingPolicy,
    StoppingPolicyConfig,
)

Locations = Mapping[int, tuple[float, float]]
"""Row and column, from -1 to 1, by index of the glimpse."""
FirstLocation = Literal["policy", "center", "uniform"]
CoreName = Literal["rnn", "lstm"]
_EVALUATION_SEED = 0


class GlimpseOutput(NamedTuple):
    """Predictions for images, and the locations of the glimpses."""

    log_probs: Float[Tensor, "B N"]
    step_log_probs: Float[Tensor, "B T N"]  # what it would say after each glimpse
    boxes: Float[Tensor, "B T K 4"]  # top, left, height and width of each scale in pixels
    num_glimpses: Int[Tensor, "B"]  # of the trail
    mean_glimpses: Float[Tensor, "B"]  # of all episodes


class TrainingOutput(NamedTuple):
    """Output of a model for images with labels."""

    log_probs: Float[Tensor, "B N"]  # of an episode of each image, or several one after another
    labels: Int[Tensor, "B"]
    auxiliary_losses: Losses


class GlimpseModel(nn.Module, ABC):
    """A classifier of images of one size that reads a part of an image at a time."""

    image_size: int
    num_classes: int
    num_glimpses: int
    num_training_episodes: int
    """Episodes of an image in training, over which losses are means."""
    locations: Locations = MappingProxyType({})
    """Where to look instead of where the model would."""

    @abstractmethod
    def forward(self, batch: LabeledImageBatch) -> TrainingOutput:
        """Classify the images with new random numbers; auxiliary losses are sums."""

    @abstractmethod
    def classify(
        self, images: Float[Tensor, "B Y X"], uniform: Float[Tensor, "B T 3"] | None
    ) -> GlimpseOutput:
        """Classify images; actions are the most probable ones without random numbers."""

    def predict(self, images: Float[Tensor, "B Y X"]) -> GlimpseOutput:
        """Classify images as at test time; the trail is that of the most probable actions."""
        return self.classify(images, None)

    def with_locations(self, locations: Locations) -> Self:
        """Return a copy that shares all parameters and looks at these locations."""
        for index in locations:
            message = f"there is no glimpse {index}: the glimpses are 0 to {self.num_glimpses - 1}"
            check(index < self.num_glimpses, "locations", message, "give the index of a glimpse")
        copied = copy.copy(self)
        copied.locations = locations
        return copied


class Episodes(NamedTuple):
    """The episode of each row: T decisions, before each glimpse."""

    states: Float[Tensor, "B T D"]  # after each glimpse
    log_probs: Float[Tensor, "B T"]  # of the decisions that were taken; zero after a stop
    baselines: Float[Tensor, "B T"]  # expected reward at each decision
    is_taken: Float[Tensor, "B T"]  # 1 for each glimpse before the stop, else 0
    locations: Float[Tensor, "B T 2"]

    @property
    def num_glimpses(self) -> Int[Tensor, "B"]:
        """Glimpses before the stop."""
        return self.is_taken.sum(dim=1).long()

    @property
    def last_states(self) -> Hidden:
        """The state of each row when it stopped."""
        # A gather, not an index: its gradient is computed in one kernel without sorting.
        last = (self.num_glimpses - 1)[:, None, None].expand(-1, 1, self.states.size(2))
        return self.states.gather(1, last).squeeze(1)


class GlimpseNetwork(nn.Module):
    """g = relu(W_1 relu(W_g rho) + W_2 relu(W_l l))  (Mnih et al. 2014, section 4)."""

    def __init__(self, sensor: GlimpseSensor, part_size: int, output_size: int) -> None:
        super().__init__()
        self.sensor = sensor
        self.patch_layer = nn.Linear(sensor.output_size, part_size)
        self.location_layer = nn.Linear(2, part_size)
        self.patch_output = nn.Linear(part_size, output_size)
        self.location_output = nn.Linear(part_size, output_size)

    def forward(
        self, prepared: Float[Tensor, "B Z"], locations: Float[Tensor, "B 2"]
    ) -> Float[Tensor, "B E"]:
        """Return the vector of a glimpse of prepared images."""
        patches = self.patch_layer(self.sensor(prepared, locations)).relu()
        places = self.location_layer(locations).relu()
        return (self.patch_output(patches) + self.location_output(places)).relu()


class ReluCore(nn.Module):
    """h' = relu(W h + U g)  (Mnih et al. 2014, section 4)."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.input_projection = nn.Linear(input_size, hidden_size)
        self.hidden_projection = nn.Linear(hidden_size, hidden_size)

    def forward(self, inputs: Float[Tensor, "B E"], state: RecurrentState) -> RecurrentState:
        """Return the next state."""
        return ((self.input_projection(inputs) + self.hidden_projection(state[0])).relu(),)


def build_core(name: CoreName, input_size: int, hidden_size: int) -> nn.Module:
    """Build the recurrent network of a model."""
    return (LSTMCell if name == "lstm" else ReluCore)(input_size, hidden_size)


def initial_core_state(core: nn.Module, hidden: Hidden) -> RecurrentState:
    """Return the state of zeros."""
    return core.initial_state(hidden) if isinstance(core, LSTMCell) else (hidden,)


class RecurrentAttentionModel(GlimpseModel):
    """RAM: cross-entropy for glimpse, core and action network, REINFORCE for the policies.

    grad J = 1/M sum_i sum_t d log pi(u_t | s_1:t) (R - b_t), with R = 1 for a correct class, less
    the cost of glimpses if stopping is learned, and b_t = w h_t + b fitted to R  (Mnih et al. 2014,
    equation 2 and section 3). Policies and baseline read h_t without passing gradients into it.
    """

    def __init__(
        self,
        network: GlimpseNetwork,
        core: nn.Module,
        policy: LocationPolicy,
        *,
        stopping: StoppingPolicy | None,
        hidden_size: int,
        config: "RecurrentAttentionConfig",
    ) -> None:
        super().__init__()
        self.network = network
        self.core = core
        self.policy = policy
        self.stopping = stopping
        self.baseline = nn.Linear(hidden_size, 1)
        self.classifier = nn.Linear(hidden_size, config.num_classes)
        self.hidden_size = hidden_size
        self.image_size, self.num_classes = config.image_size, config.num_classes
        self.num_glimpses, self.first_location = config.num_glimpses, config.first_location
        self.reinforce_weight = config.reinforce_weight
        self.num_training_episodes = config.num_training_episodes
        self.num_test_episodes = config.num_test_episodes

    @override
    def forward(self, batch: LabeledImageBatch) -> TrainingOutput:
        count = self.num_training_episodes
        images = batch.render(self.image_size).repeat(count, 1, 1)
        labels = batch.labels.repeat(count)
        shape = len(images), self.num_glimpses, NUM_UNIFORM
        episodes = self.run_episodes(images, torch.rand(shape, device=images.device))
        log_probs = self.classifier(episodes.last_states).log_softmax(dim=-1)
        losses = self.policy_losses(episodes, log_probs.detach(), labels)
        return TrainingOutput(log_probs, labels, losses)

    def policy_losses(
        self, episodes: Episodes, log_probs: Float[Tensor, "B N"], labels: Int[Tensor, "B"]
    ) -> Losses:
        """Return the losses of policies and baseline, summed over episodes and divided by M.

        The value of "reinforce" is 1 - R; its gradient is -(R - b_t) d log pi.
        """
        rewards = (log_probs.argmax(dim=-1) == labels).to(log_probs.dtype)
        if self.stopping is not None:
            rewards = rewards - self.stopping.cost * episodes.is_taken.sum(dim=1)
        advantages = rewards.unsqueeze(1) - episodes.baselines
        surrogate = (advantages.detach() * episodes.log_probs).sum()
        risk = (1 - rewards).sum() - (surrogate - surrogate.detach())
        errors = (episodes.is_taken * advantages.square()).sum()
        scale = 1 / self.num_training_episodes
        return {"reinforce": scale * self.reinforce_weight * risk, "baseline": scale * errors}

    def run_episodes(
        self, images: Float[Tensor, "B Y X"], uniform: Float[Tensor, "B T 3"] | None
    ) -> Episodes:
        """Take all glimpses of each image."""
        prepared = self.network.sensor.prepare(images)
        state = initial_core_state(self.core, images.new_zeros(len(images), self.hidden_size))
        is_running = images.new_ones(len(images))
        steps = []
        for index in range(self.num_glimpses):
            numbers = None if uniform is None else uniform[:, index]
            hidden = state[0].detach()
            log_probs = torch.zeros_like(is_running)
            if self.stopping is not None and index:
                stop = self.stopping(hidden, None if numbers is None else numbers[:, 2])
                log_probs = is_running * stop.log_probs
                is_running = is_running * ~stop.is_stopped
            locations, location_log_probs = self._choose_locations(hidden, numbers, index)
            log_probs = log_probs + is_running * location_log_probs
            baseline = self.baseline(hidden).squeeze(-1)
            state = self.core(self.network(prepared, locations), state)
            steps.append((state[0], log_probs, baseline, is_running, locations))
        return Episodes(*(torch.stack(parts, dim=1) for parts in zip(*steps, strict=True)))

    def _choose_locations(
        self, hidden: Hidden, uniform: Float[Tensor, "B 3"] | None, index: int
    ) -> tuple[Float[Tensor, "B 2"], Float[Tensor, "B"]]:
        """Return the next locations with their log-probabilities; zero if nothing was decided."""
        if index in self.locations:
            location = hidden.new_tensor(self.locations[index])
            return location.expand(len(hidden), 2), hidden.new_zeros(len(hidden))
        if index or self.first_location == "policy":
            action = self.policy(hidden, None if uniform is None else uniform[:, :2])
            return action.locations, action.log_probs
        centers = hidden.new_zeros(len(hidden), 2)
        is_random = self.first_location == "uniform" and uniform is not None
        locations = 2 * uniform[:, :2] - 1 if is_random and uniform is not None else centers
        return locations, hidden.new_zeros(len(hidden))

    @override
    def classify(
        self, images: Float[Tensor, "B Y X"], uniform: Float[Tensor, "B T 3"] | None
    ) -> GlimpseOutput:
        episodes = self.run_episodes(images, uniform)
        step_log_probs = self.classifier(episodes.states).log_softmax(dim=-1)
        log_probs = self.classifier(episodes.last_states).log_softmax(dim=-1)
        boxes = self.network.sensor.boxes(episodes.locations)
        counts = episodes.num_glimpses
        return GlimpseOutput(log_probs, step_log_probs, boxes, counts, counts.to(log_probs.dtype))

    @override
    def predict(self, images: Float[Tensor, "B Y X"]) -> GlimpseOutput:
        """Average the probabilities of sampled episodes, if there are several (Monte Carlo).

        All images share the random numbers, which come from a fixed seed.
        """
        output = self.classify(images, None)
        if self.num_test_episodes == 1:
            return output
        generator = torch.Generator().manual_seed(_EVALUATION_SEED)
        shape = self.num_test_episodes, 1, self.num_glimpses, NUM_UNIFORM
        uniform = torch.rand(shape, generator=generator).to(images).expand(-1, len(images), -1, -1)
        samples = [self.classify(images, numbers) for numbers in uniform]
        log_probs = torch.stack([sample.log_probs for sample in samples])
        counts = torch.stack([sample.mean_glimpses for sample in samples])
        mean = log_probs.logsumexp(dim=0).log_softmax(dim=-1)
        return output._replace(log_probs=mean, mean_glimpses=counts.mean(dim=0))


class GlimpseModelConfigBase(BaseConfig):
    """A classifier of images that takes glimpses."""

    image_size: PositiveInt = Field(default=28, le=MAX_CANVAS_SIZE)
    """Height and width of the images in pixels; smaller ones are placed on such a canvas."""
    num_classes: int = Field(default=10, ge=2, le=256)
    """Number of labels, which are counted from 0."""
    num_glimpses: PositiveInt = Field(default=6, le=1000)
    """Glimpses of an image; with learned stopping, the most it may take."""
    hidden_size: PositiveInt = 256
    """Size of the state of the core network."""


class RecurrentAttentionConfig(GlimpseModelConfigBase):
    """Recurrent model of visual attention (Mnih et al. 2014)."""

    type: Literal["recurrent-attention"] = "recurrent-attention"
    glimpse_size: PositiveInt = Field(default=8, le=1024)
    """Height and width of the patch of the first scale; of every scale after averaging."""
    num_scales: PositiveInt = Field(default=1, le=10)
    """Patches of a glimpse, each twice as high and wide as the one before."""
    part_size: PositiveInt = 128
    """Size of the layers for the patches and for the location."""
    glimpse_hidden_size: PositiveInt = 256
    """Size of the vector of a glimpse, in which both are joined."""
    core: CoreName = "rnn"
    """Recurrent network: `rnn` with rectified units, as for images in the paper, or `lstm`."""
    location: LocationPolicyConfig = GaussianLocationPolicyConfig()
    """Distribution of the next location."""
    first_location: FirstLocation = "policy"
    """The first location: of the policy, in the center, or uniform over the image."""
    stopping: StoppingPolicyConfig | None = None
    """Learned stopping; null for a fixed number of glimpses."""
    reinforce_weight: NonNegativeFloat = 1.0
    """Weight of the policies' loss beside the cross-entropy."""
    num_training_episodes: PositiveInt = Field(default=1, le=1000)
    """Episodes of each image of a batch, M in the paper."""
    num_test_episodes: PositiveInt = Field(default=10, le=10_000)
    """Sampled episodes whose probabilities are averaged at test time; 1: the most probable
    actions."""
    init: InitConfig = DefaultInitConfig()
    """Initial values of the parameters."""

    def build(
        self, *, source_vocab_size: int = 0, target_vocab_size: int = 0
    ) -> RecurrentAttentionModel:
        del source_vocab_size, target_vocab_size
        sensor = GlimpseSensor(self.image_size, self.glimpse_size, self.num_scales)
        network = GlimpseNetwork(sensor, self.part_size, self.glimpse_hidden_size)
        size, stopping = self.hidden_size, self.stopping
        model = RecurrentAttentionModel(
            network,
            build_core(self.core, self.glimpse_hidden_size, size),
            self.location.build(hidden_size=size),
            stopping=stopping.build(hidden_size=size) if stopping else None,
            hidden_size=size,
            config=self,
        )
        self.init.initialize(model)
        return model
