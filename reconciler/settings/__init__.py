"""The operator's one YAML file (design: Settings)."""

from reconciler.settings.loader import (
    DEFAULT_PATH,
    ENVIRONMENT,
    RULES,
    SettingsError,
    load_settings,
    parse_duration,
    settings_path,
)
from reconciler.settings.types import (
    Credentials,
    EventSettings,
    HostSettings,
    LocationSettings,
    LogSettings,
    PruneSettings,
    RetrySettings,
    SecretSettings,
    Settings,
    SourceSettings,
    StatusSettings,
    VerifySettings,
    is_local,
)

__all__ = [
    "DEFAULT_PATH",
    "ENVIRONMENT",
    "RULES",
    "Credentials",
    "EventSettings",
    "HostSettings",
    "LocationSettings",
    "LogSettings",
    "PruneSettings",
    "RetrySettings",
    "SecretSettings",
    "Settings",
    "SettingsError",
    "SourceSettings",
    "StatusSettings",
    "VerifySettings",
    "is_local",
    "load_settings",
    "parse_duration",
    "settings_path",
]
