"""Configuration: from YAML to frozen, checked values.

Each choice is a small `Choice` beside the thing it builds. Unknown keys and names are errors
that say where they stand and which allowed word is nearest. Names are looked up in closed
lists only: nothing a file says can import or run code.
"""

from heedful.config.checking import resolve
from heedful.config.choice import Choice, Settings
from heedful.config.overrides import Override, parse_override
from heedful.config.yaml_text import read_settings, read_yaml, write_yaml

__all__ = [
    "Choice",
    "Override",
    "Settings",
    "parse_override",
    "read_settings",
    "read_yaml",
    "resolve",
    "write_yaml",
]
