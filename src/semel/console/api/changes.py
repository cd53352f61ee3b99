"""Changes. Each is named in the log of the console; each that destroys says what it expects to find, and is refused if
something else is there by now."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any

from semel.client.admin.values import ConfigResource, NewTopic
from semel.client.metadata import TopicPartition
from semel.console.watch import Watch, now_ms
from semel.views import group_reset, trimming
from semel.views.positions import place, position
from semel.views.refusals import Misasked, Missing, Refusal
from semel.views.topics import described
from semel.views.transactions import OPEN_STATES, abort_hanging, commit_hanging, fence, known, no_such_id

logger = logging.getLogger("semel.console")

Change = Callable[[Watch, dict[str, Any]], Awaitable[str]]
"""Returns what was done, as a sentence."""


async def change(watch: Watch, name: str, given: dict[str, Any]) -> str:
    if name not in CHANGES:
        raise Misasked(f"there is no change {name!r}; there are {', '.join(CHANGES)}")
    done = await CHANGES[name](watch, given)
    watch.forget()
    logger.info("%s: %s", name, done)
    return done


async def _create_topic(watch: Watch, given: dict[str, Any]) -> str:
    name = _text(given, "name")
    settings = _settings(given.get("settings") or {})
    wanted = NewTopic(name, _number(given, "partitions", -1), _number(given, "replication", -1), settings)
    await watch.admin.create_topics(wanted)
    return f"topic {name} was created"


async def _delete_topic(watch: Watch, given: dict[str, Any]) -> str:
    name = _text(given, "name")
    if given.get("confirm") != name:
        raise Misasked(f"to delete topic {name!r}, type its name")
    await described(watch.admin, [name])
    await watch.admin.delete_topics(name)
    return f"topic {name} was deleted"


async def _alter_topic(watch: Watch, given: dict[str, Any]) -> str:
    name = _text(given, "name")
    changes, reset = _settings(given.get("set") or {}), given.get("reset") or []
    if not isinstance(reset, list) or not all(isinstance(one, str) for one in reset):
        raise Misasked("reset is not allowed; allowed: a list of names of settings")
    topic = (await described(watch.admin, [name]))[name]
    done = []
    if changes or reset:
        await watch.admin.alter_configs(ConfigResource.topic(name), set=changes, delete=reset)
        done += [f"{setting} is {value}" for setting, value in changes.items()]
        done += [f"{setting} is at its default" for setting in reset]
    partitions = _number(given, "partitions", len(topic.partitions))
    if partitions < len(topic.partitions):
        raise Misasked(f"topic {name!r} has {len(topic.partitions)} partitions, and none can be taken away")
    if partitions > len(topic.partitions):
        await watch.admin.create_partitions({name: partitions})
        done.append(f"it has {partitions} partitions")
    if not done:
        raise Misasked("nothing to change")
    return f"topic {name}: {', '.join(done)} now"


async def _trim_topic(watch: Watch, given: dict[str, Any]) -> str:
    name = _text(given, "name")
    if given.get("confirm") != name:
        raise Misasked(f"to delete records of topic {name!r}, type its name")
    trims = await trimming.plan(watch.admin, [place(name)], position(_text(given, "before")), now_ms=now_ms())
    done = await trimming.execute(watch.admin, trims)
    gone = sum(max(trim.new - trim.start, 0) for trim in done)
    return f"topic {name}: {gone:,} offsets were deleted"


async def _reset_group(watch: Watch, given: dict[str, Any]) -> str:
    """Exactly the moves that were previewed, unless the group has moved meanwhile."""
    name, moves = _text(given, "name"), given.get("moves")
    if not isinstance(moves, list) or not moves:
        raise Misasked("moves is not allowed; allowed: the moves of a preview")
    try:
        wanted = {TopicPartition(one["topic"], one["partition"]): (one["committed"], int(one["new"])) for one in moves}
    except (TypeError, KeyError, ValueError):
        raise Misasked("moves is not allowed; allowed: the moves of a preview") from None
    committed = (await watch.admin.list_group_offsets(name))[name]
    for where, (before, _) in wanted.items():
        now = committed[where].offset if where in committed else None
        if now != before:
            raise Refusal(
                f"group {name!r} stood at {before} in {where.topic}/{where.partition} when this was shown, and stands "
                f"at {now} now: look at the preview again"
            )
    planned = [group_reset.Move(where, before, new, new, new) for where, (before, new) in wanted.items()]
    await group_reset.execute(watch.admin, name, planned, None)
    return f"group {name} was set to other offsets in {len(planned)} partitions"


async def _delete_group(watch: Watch, given: dict[str, Any]) -> str:
    name = _text(given, "name")
    if given.get("confirm") != name:
        raise Misasked(f"to delete group {name!r}, type its name")
    await watch.admin.delete_groups(name)
    return f"group {name} was deleted"


async def _end_transaction(watch: Watch, given: dict[str, Any]) -> str:
    """Fences a transactional id, if it still does what was shown: a transaction that began since is left alone."""
    name = _text(given, "transactional_id")
    found = (await known(watch.admin, [name])).get(name)
    if found is None:
        raise Missing(no_such_id(name))
    shown = (given.get("producer_id"), given.get("started_ms"))
    if found.state not in OPEN_STATES or shown != (found.producer_id, found.started_ms):
        raise Refusal(
            f"the transaction of {name} that was shown is over, and {name} may have begun another: nothing was done. "
            "Look again"
        )
    await fence(watch.admin, name)
    return f"the transaction of {name} was aborted; its producer is fenced, and can go on when it starts anew"


async def _end_hanging(watch: Watch, given: dict[str, Any]) -> str:
    where, producer_id = place(_text(given, "place")), _number(given, "producer_id", -1)
    if given.get("how") == "commit":
        one = await commit_hanging(watch.admin, where, producer_id)
        return f"the transaction of producer {producer_id} in {where}, open since {one.start_offset}, was committed"
    one = await abort_hanging(watch.admin, where, producer_id)
    return f"the transaction of producer {producer_id} in {where}, open since {one.start_offset}, was aborted"


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str) or not value:
        raise Misasked(f"{name} is missing")
    return value


def _number(given: dict[str, Any], name: str, default: int) -> int:
    value = given.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 0:
        raise Misasked(f"{name}={value!r} is not allowed; allowed: a whole number")
    return value


def _settings(given: object) -> dict[str, str]:
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise Misasked("settings are not allowed; allowed: names and values")
    return {str(name): value for name, value in given.items()}


CHANGES: dict[str, Change] = {
    "create-topic": _create_topic,
    "delete-topic": _delete_topic,
    "alter-topic": _alter_topic,
    "trim-topic": _trim_topic,
    "reset-group": _reset_group,
    "delete-group": _delete_group,
    "end-transaction": _end_transaction,
    "end-hanging": _end_hanging,
}
