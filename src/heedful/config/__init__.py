"""Configuration: from YAML to frozen, validated values.

Each option is a small `BaseConfig` beside the class it builds. Unknown keys and names are errors
that name the nearest allowed one. Names are looked up in closed lists: no file can import or run
code.
"""

from heedful.config.base import (
    BaseConfig,
    Settings,
    differences,
    fields_with_role,
    flatten_settings,
)
from heedful.config.loading import (
    Override,
    parse_override,
    read_settings,
    read_yaml,
    to_yaml,
    validate_settings,
)

__all__ = [
    "BaseConfig",
    "Override",
    "Settings",
    "differences",
    "fields_with_role",
    "flatten_settings",
    "parse_override",
    "read_settings",
    "read_yaml",
    "to_yaml",
    "validate_settings",
]
