"""The command-line options of the task; imports no torch."""

from heedful.tasks.file_options import PARALLEL_FILES

FILE_OPTIONS = PARALLEL_FILES
COMMANDS = ()
