"""The command-line options of the task; imports no torch."""

from heedful.tasks.file_options import TEXT_FILES

FILE_OPTIONS = TEXT_FILES
COMMANDS = ()
