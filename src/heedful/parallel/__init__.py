"""Work in chunks: how what comes in is cut up, shared among processes and put in order again."""

from heedful.parallel.chunks import as_they_arrive, in_full
from heedful.parallel.worker import Job
from heedful.parallel.workers import WorkerLostError, working

__all__ = ["Job", "WorkerLostError", "as_they_arrive", "in_full", "working"]
