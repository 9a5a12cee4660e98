"""The System One server: an app made for an engine, and its settings."""

from flide_agent.server.app import create_app
from flide_agent.server.settings import Limits, Settings

__all__ = ["Limits", "Settings", "create_app"]
