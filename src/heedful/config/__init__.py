"""Configuration: from YAML to frozen, validated values.

Each option is a small `BaseConfig` below the class it builds. Unknown keys and names are errors
that name the nearest allowed one. Names are looked up in closed lists: no file can import or run
code.

Reading order: `base` (also types of arguments), `loading`, `yaml_files` and `setting_aliases`
(names of other toolkits).
"""

from heedful.config.base import (
    BaseConfig,
    ModuleConfig,
    Settings,
    check_types,
    differences,
    fields_with_role,
    flatten_settings,
)
from heedful.config.loading import (
    LocatedSettings,
    Override,
    SettingsArgument,
    parse_override,
    to_overrides,
    validate_settings,
    wrong_type_error,
)
from heedful.config.yaml_files import read_settings, read_yaml, to_commented_yaml, to_yaml

__all__ = [
    "BaseConfig",
    "LocatedSettings",
    "ModuleConfig",
    "Override",
    "Settings",
    "SettingsArgument",
    "check_types",
    "differences",
    "fields_with_role",
    "flatten_settings",
    "parse_override",
    "read_settings",
    "read_yaml",
    "to_commented_yaml",
    "to_overrides",
    "to_yaml",
    "validate_settings",
    "wrong_type_error",
]
