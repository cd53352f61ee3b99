"""The admin's settings."""

from __future__ import annotations

from dataclasses import dataclass

from semel.client.settings import MINUTE_MS, ConnectionSettings, option


@dataclass(frozen=True, kw_only=True)
class AdminSettings(ConnectionSettings):
    default_api_timeout_ms: int = option(
        MINUTE_MS, "How long a call is tried again before it fails with its last error.", minimum=1
    )
