"""The settings of a node in a file beside its data, written by the commands that make it one of a cluster."""

from __future__ import annotations

import json
from collections.abc import Mapping

NODE_FILE = "node.toml"
"""In a data directory: `semel serve --data` goes by it unless it is told another file."""


def settings_text(settings: Mapping[str, str], *comments: str) -> str:
    """TOML, as `load_config` reads it."""
    lines = [f"# {comment}\n" for comment in comments]
    # A string of JSON, with all that is not ASCII escaped, is one of TOML.
    lines += [f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in settings.items()]
    return "".join(lines)
