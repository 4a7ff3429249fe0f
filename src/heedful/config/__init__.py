"""Configuration: from YAML to frozen, checked values.

Each choice is a small `BaseConfig` beside the thing it builds. Unknown keys and names are errors
that say where they stand and which allowed word is nearest. Names are looked up in closed
lists only: nothing a file says can import or run code.
"""

from heedful.config.base import (
    BaseConfig,
    SettingChange,
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
    "SettingChange",
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
