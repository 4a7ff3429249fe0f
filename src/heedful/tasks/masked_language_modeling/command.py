"""The command-line options of the task; imports no torch."""

from heedful.tasks.command_line import TEXT_FILES

FILE_OPTIONS = TEXT_FILES
COMMANDS = ()
ROUTE = "fill"
