"""Counts and times of a server, which `/metrics` shows in the format of Prometheus."""

from functools import partial

import prometheus_client as prometheus

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class ServerMetrics:
    """The metrics of one server; they belong to no global registry."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(
            registry=registry
        )  # memory, CPU time and files of the front process
        counter = partial(prometheus.Counter, registry=registry)
        gauge = partial(prometheus.Gauge, registry=registry)
        histogram = partial(prometheus.Histogram, registry=registry)
        self.requests = counter(
            "heedful_requests", "Answers by route and status.", ["route", "status"]
        )
        self.request_seconds = histogram(
            "heedful_request_duration_seconds",
            "Time from request to answer.",
            ["route"],
            buckets=_SECONDS,
        )
        self.rejected = counter(
            "heedful_rejected_requests", "Requests that were not admitted.", ["reason"]
        )
        self.queue_items = gauge("heedful_queue_items", "Inputs that wait for a worker.")
        self.queue_seconds = histogram(
            "heedful_queue_duration_seconds", "Time in the queue.", buckets=_SECONDS
        )
        self.batch_items = histogram(
            "heedful_batch_items", "Inputs of a batch.", ["model"], buckets=_SIZES
        )
        self.batch_seconds = histogram(
            "heedful_batch_duration_seconds",
            "Time of a batch in the worker.",
            ["model"],
            buckets=_SECONDS,
        )
        self.characters = counter(
            "heedful_input_characters", "Characters of predicted inputs.", ["model"]
        )
        self.decoding_steps = counter(
            "heedful_decoding_steps",
            "Steps of hypotheses in searches on the CPU, but those of CTranslate2.",
        )
        self.streams = gauge("heedful_streams", "Open streams.")
        self.canceled = counter(
            "heedful_canceled_items", "Inputs that were given up: deadline or hang-up."
        )
        self.workers = gauge("heedful_ready_workers", "Workers that predict.")
        self.restarts = counter("heedful_worker_restarts", "Workers that died and were replaced.")
        self.models = gauge("heedful_model_info", "Served runs.", ["model", "task", "step"])

    def format(self) -> bytes:
        """Return all metrics in the text format of Prometheus."""
        return prometheus.generate_latest(self._registry)
