"""Every setting works, or says that it does not: a declared setting that no code reads begins with these words."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import semel
from semel.config import BrokerConfig
from semel.config.broker_settings import BROKER_SETTINGS
from semel.config.describe import describe_broker, describe_topic
from semel.config.document import page
from semel.config.settings import Setting
from semel.config.topic_settings import TOPIC_SETTINGS

NO_EFFECT = "Accepted and without effect"
ROOT = Path(semel.__file__).parent
ROOMS = ("broker", "config", "controller", "coordinator", "log", "replication", "rpc", "security", "cli/serving.py")
GETTERS = {"int", "bool", "str", "list", "double", "text"}


def sources() -> Iterator[ast.Module]:
    """The code of a node, without the declarations."""
    for room in ROOMS:
        place = ROOT / room
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            if not (path.parent.name == "config" and path.stem.endswith("_settings")):
                module = ast.parse(path.read_text())
                # What may be set for internal topics is judged also where nothing comes of it.
                module.body = [node for node in module.body if getattr(node, "name", "") != "check_settings"]
                yield module


@cache
def reads() -> tuple[set[str], list[re.Pattern[str]], set[str]]:
    """Texts that stand in the code, patterns of names that are put together where they are read, and attributes."""
    texts, patterns, attributes = set(), [], set()
    for module in sources():
        for node in ast.walk(module):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.add(node.value)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                attributes.add(node.attr)
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in GETTERS):
                continue
            for argument in node.args:
                if isinstance(argument, ast.JoinedStr):
                    parts = [
                        re.escape(part.value) if isinstance(part, ast.Constant) else ".+" for part in argument.values
                    ]
                    patterns.append(re.compile("".join(parts)))
    return texts, patterns, attributes


def is_read_of_topics(setting: Setting) -> bool:
    return setting.name.replace(".", "_") in reads()[2]


def is_read_of_nodes(setting: Setting) -> bool:
    texts, patterns, _ = reads()
    if setting.name in texts or any(pattern.fullmatch(setting.name) for pattern in patterns):
        return True
    heirs = [heir for heir in TOPIC_SETTINGS.values() if setting.name in [one.name for one in heir.synonyms]]
    return any(is_read_of_topics(heir) for heir in heirs)


def says_so(setting: Setting) -> bool:
    """Or can only be off, and says why."""
    return setting.sentence.startswith(NO_EFFECT) or setting.allowed.startswith("false: ")


@pytest.mark.parametrize("name", BROKER_SETTINGS)
def test_a_setting_of_a_node_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    setting = BROKER_SETTINGS[name]
    assert is_read_of_nodes(setting) is not says_so(setting), setting.sentence


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_a_setting_of_a_topic_is_read_or_says_that_it_has_no_effect(name: str) -> None:
    setting = TOPIC_SETTINGS[name]
    assert is_read_of_topics(setting) is not says_so(setting), setting.sentence


def test_the_search_tells_what_is_read_from_what_is_not() -> None:
    made_up = BROKER_SETTINGS["node.id"]._replace(name="nobody.reads.this")
    assert not is_read_of_nodes(made_up)
    assert not is_read_of_topics(made_up)
    for name in ("node.id", "log.dirs", "log.retention.hours", "offsets.topic.replication.factor"):
        assert is_read_of_nodes(BROKER_SETTINGS[name]), name


def test_whoever_asks_for_the_documentation_of_a_setting_is_told_that_it_has_no_effect() -> None:
    told = {one.name: one.documentation for one in describe_broker(BrokerConfig())}
    told |= {one.name: one.documentation for one in describe_topic({}, BrokerConfig())}
    rows = {line.split("`")[1]: line for line in page().splitlines() if line.startswith("| `")}
    for name in ("num.replica.alter.log.dirs.threads", "segment.jitter.ms"):
        assert told[name].startswith(NO_EFFECT)
        assert NO_EFFECT in rows[name]
