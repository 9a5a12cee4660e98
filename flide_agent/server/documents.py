"""What the OpenAPI document says about each route."""

from __future__ import annotations

from typing import Any

SYSTEM_ONE: dict[str, Any] = {}
MODELS: dict[str, Any] = {}
HEALTH: dict[str, Any] = {}
METRICS: dict[str, Any] = {}
CREATE: dict[str, Any] = {}
APPEND: dict[str, Any] = {}
ASK: dict[str, Any] = {}
FORK: dict[str, Any] = {}
REWIND: dict[str, Any] = {}
WATCH: dict[str, Any] = {}
DESCRIBE: dict[str, Any] = {}
DROP: dict[str, Any] = {}
