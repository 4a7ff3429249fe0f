"""The `training` section of a recipe."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt

from heedful.config import BaseConfig
from heedful.data.text.batching import BatchingConfig
from heedful.errors import check
from heedful.models.scheduled_sampling import ScheduledSamplingConfig, TeacherForcingConfig
from heedful.storage.compression import Precision
from heedful.training import optim
from heedful.training.checkpoints import CheckpointConfig
from heedful.training.guided_alignment import GuidedAlignmentConfig
from heedful.training.objectives import CrossEntropyObjectiveConfig, ObjectiveConfig
from heedful.training.trainer import EMAConfig, PrecisionName


class InitEmbeddingsConfig(BaseConfig):
    """Files of word vectors: text of word2vec, GloVe or fastText, also compressed."""

    source: str | None = None
    """Vectors of source tokens, or of the only ones; those of the size of the embeddings."""
    target: str | None = None
    """Vectors of target tokens."""


class TrainingConfig(BaseConfig):
    """How a model is trained; fields marked "limit" or "execution" may change on resume."""

    seed: Annotated[int, Field(ge=0, lt=2**63), "seed"] = 0
    """Random seed of the initial parameters, the data order and dropout."""
    init_from: str | None = None
    """Run folder whose weights and vocabulary to start from."""
    init_embeddings: InitEmbeddingsConfig = InitEmbeddingsConfig()
    """Files whose word vectors are the initial embeddings; random ones without."""
    max_steps: Annotated[PositiveInt, "limit"] = 20_000
    """Maximum number of optimizer steps."""
    max_epochs: Annotated[PositiveInt | None, "limit"] = None
    """Maximum number of epochs; no limit if null."""
    max_minutes: Annotated[PositiveFloat | None, "limit"] = None
    """Maximum training time in minutes, over all interruptions; no limit if null."""
    max_flops: Annotated[PositiveFloat | None, "limit"] = None
    """Maximum floating-point operations, forward and backward; no limit if null."""
    max_nonfinite_steps: Annotated[PositiveInt, "execution"] = 10
    """Consecutive steps with a NaN or infinite loss or gradient after which training fails."""
    patience: Annotated[PositiveInt | None, "limit"] = 10
    """Early stopping: validations without improvement; off if null."""
    metric_for_best_model: str = "loss"
    """Metric of the task that selects the best checkpoint and that `patience` watches."""
    target_score: Annotated[float | None, "limit"] = None
    """Stop when `metric_for_best_model` is at least this good in a validation; off if null."""
    validate_every: Annotated[PositiveInt | None, "execution"] = 500
    """Steps between validations; each also saves a checkpoint. If null, ten are spread evenly."""
    validate_every_epochs: Annotated[PositiveInt | None, "execution"] = None
    """Epochs between validations where they take fewer steps than `validate_every`. With files on
    the command line it is 10, so that small data is validated on before it is learned by heart."""
    validation_metrics: Annotated[tuple[str, ...] | None, "execution"] = None
    """Metrics to show beside the loss; those of the task if null, such as bleu and chrf."""
    max_eval_samples: Annotated[PositiveInt, "execution"] = 500
    """Maximum number of dev examples to decode for the metric that selects the best checkpoint."""
    num_logged_samples: Annotated[NonNegativeInt, "execution"] = 3
    """Dev examples whose predictions each validation writes to samples.jsonl; it shows three."""
    save_every: Annotated[PositiveInt | None, "execution"] = None
    """Steps between further checkpoints; only at validations if null."""
    checkpoints: Annotated[CheckpointConfig, "execution"] = CheckpointConfig()
    """Which checkpoints to keep."""
    saved_precision: Precision = "fp32"
    """How the best weights are saved: fp16, int8 or int4 take fewer bytes; checkpoints are fp32."""
    batching: BatchingConfig = BatchingConfig()
    """How examples are grouped into batches."""
    gradient_accumulation_steps: PositiveInt = Field(default=1, le=100_000)
    """Micro-batches per optimizer step."""
    distributed_strategy: Annotated[Literal["ddp", "fsdp"], "execution"] = "ddp"
    """With several processes: each holds all parameters (DDP) or a shard of them (FSDP2)."""
    cpu_processes: Annotated[PositiveInt | None, Field(le=256), "execution"] = None
    """Processes that share a training on a CPU, each on cores of its own; 1 for threads alone. If
    null, one for every two cores, if there are four or more and batches are large enough."""
    precision: PrecisionName | None = None
    """Data type of matrix products; parameters are always fp32. If null, it is fp32; for
    translation on a GPU that has it, bf16."""
    cuda_graphs: bool = True
    """Whether steps on a GPU are captured as CUDA graphs, one per batch shape, if possible."""
    optimizer: optim.OptimizerConfig = optim.AdamWConfig()
    """Optimizer and peak learning rate."""
    lr_scheduler: optim.LRScheduleConfig = optim.InverseSqrtScheduleConfig(warmup_steps=1000)
    """Learning-rate schedule."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Gradient clipping by global norm; off if null."""
    max_grad_value: PositiveFloat | None = None
    """Gradient clipping by value; off if null."""
    ema: EMAConfig | None = None
    """Exponential moving average of the parameters, used for validation and the saved weights."""
    objective: ObjectiveConfig = CrossEntropyObjectiveConfig()
    """Training objective."""
    scheduled_sampling: ScheduledSamplingConfig = TeacherForcingConfig()
    """Teacher forcing, or a schedule for feeding the decoder its own tokens."""
    guided_alignment: GuidedAlignmentConfig | None = None
    """Word alignments that attention is trained to agree with (Chen et al. 2016); off if null."""
    label_smoothing: float = Field(default=0.0, ge=0, lt=1)
    """Probability mass spread evenly over the vocabulary."""

    def check_no_decoder(self, reason: str) -> None:
        """Raise ConfigError for an objective or a sampling schedule that only decoders have."""
        for setting, value, expected in (
            ("objective", self.objective, CrossEntropyObjectiveConfig),
            ("scheduled_sampling", self.scheduled_sampling, TeacherForcingConfig),
        ):
            message, hint = f"'{value.type}' {reason}", f"remove training.{setting}"
            check(isinstance(value, expected), f"training.{setting}.type", message, hint)
