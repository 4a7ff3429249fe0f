"""The command line: each command parses, calls the library and prints.

Reading order: `main` (subcommands and exit codes), `options` (parameters that commands share), then
a module for one or more commands: `train` (also prepare, average and bench), `evaluate`, `show`
(also report), `compare`, `reproduce`, `demos`, `data` (also features of images), `runs` (also
recipes), `align`, `serve`, `conversion` (import, export, compress and distill) and `course`.
Commands of one task are in `heedful.tasks`.
"""
