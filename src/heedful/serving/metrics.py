"""Counts and times of a server, which `/metrics` shows in the format of Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """The metrics of one server; they belong to no global registry."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self.requests = Counter(
            "heedful_requests",
            "Answers by route and status.",
            ["route", "status"],
            registry=registry,
        )
        self.request_seconds = Histogram(
            "heedful_request_seconds",
            "Time from request to answer.",
            ["route"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.rejected = Counter(
            "heedful_rejected", "Requests that were not admitted.", ["reason"], registry=registry
        )
        self.queue_items = Gauge(
            "heedful_queue_items", "Inputs that wait for a worker.", registry=registry
        )
        self.queue_seconds = Histogram(
            "heedful_queue_seconds", "Time in the queue.", buckets=_SECONDS, registry=registry
        )
        self.batch_items = Histogram(
            "heedful_batch_items",
            "Inputs of a batch.",
            ["model"],
            buckets=_SIZES,
            registry=registry,
        )
        self.batch_seconds = Histogram(
            "heedful_batch_seconds",
            "Time of a batch in the worker.",
            ["model"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.characters = Counter(
            "heedful_input_characters",
            "Characters of predicted inputs.",
            ["model"],
            registry=registry,
        )
        self.decoding_steps = Counter(
            "heedful_decoding_steps",
            "Steps of hypotheses in searches on the CPU, but those of CTranslate2.",
            registry=registry,
        )
        self.streams = Gauge("heedful_streams", "Open streams.", registry=registry)
        self.canceled = Counter(
            "heedful_canceled_items",
            "Inputs that were given up: deadline or hang-up.",
            registry=registry,
        )
        self.workers = Gauge("heedful_ready_workers", "Workers that predict.", registry=registry)
        self.restarts = Counter(
            "heedful_worker_restarts", "Workers that died and were replaced.", registry=registry
        )
        self.models = Gauge(
            "heedful_model_info", "Served runs.", ["model", "task", "step"], registry=registry
        )

    def format(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return generate_latest(self._registry)
