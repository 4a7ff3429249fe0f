"""Jobs of worker processes, in a module that is imported in a moment: it needs no torch."""

import os
import sys
import time

from heedful.errors import DataError
from heedful.parallel import cancelled


class SquareJob:
    """Squares numbers, the larger the faster; returns the process id too."""

    def setup(self, *, is_shared):
        self.is_shared = is_shared
        return self.square

    def square(self, number):
        if number < 0:
            raise DataError(str(number), "is negative", "use another")
        time.sleep(0.05 / (1 + number))
        return number**2, os.getpid(), self.is_shared


class ExitJob:
    """Exits with the task as exit code."""

    def setup(self, *, is_shared):
        return os._exit


class PidJob:
    """Returns the process id."""

    def setup(self, *, is_shared):
        return lambda task: os.getpid()


class NoModelsJob:
    """Is that of a server without models."""

    def setup(self, *, is_shared):
        return lambda call: ([], 0, 0.0)


class CancelledJob:
    """Returns the number of cancelled ids; a task above 0 is a stream until it is cancelled."""

    def setup(self, *, is_shared):
        return lambda task: self.wait(task) if task else len(cancelled)

    def wait(self, task):
        while task not in cancelled:
            yield None


class DivideJob:
    """Divides 12, and prints what must not end up among the results."""

    def setup(self, *, is_shared):
        return self.divide

    def divide(self, number):
        sys.stdout.write("dividing\n")
        return 12 / number


class ErrorJob:
    """Raises an error of this class."""

    def __init__(self, error_class):
        self.error_class = error_class

    def setup(self, *, is_shared):
        raise self.error_class("the run", "does not exist", "train it")


class UnreadableJob:
    """Can be pickled, but not unpickled."""

    def __reduce__(self):
        return int, ("no number",)


class TasksJob:
    """Returns the names of the tasks."""

    def setup(self, *, is_shared):
        from heedful.tasks.registry import TASKS

        return lambda task: list(TASKS)
