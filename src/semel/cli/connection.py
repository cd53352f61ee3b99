"""Which cluster a command speaks to: `--bootstrap`, `--context`, the context in use, or localhost:9092.

`client_settings(options)` gives the keyword arguments for Producer, Consumer and Admin. The client is imported when it
is needed, so that help and completion do without.
"""

from __future__ import annotations

import argparse
import threading
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from semel.cli.failures import Terminated, WrongCall

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from semel.client.admin.admin import Admin

DEFAULT_BOOTSTRAP = "localhost:9092"
_DEFAULTS = {"client_id": "semel-cli", "bootstrap_timeout_ms": "5000"}
"""Where the client's own defaults are those of a program that may wait longer than somebody at a terminal."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """`--bootstrap` or `--context`, and `--set` for any setting of the client."""
    cluster = parser.add_argument_group("the cluster")
    where = cluster.add_mutually_exclusive_group()
    where.add_argument(
        "--bootstrap", metavar="HOST:PORT", help=f"a node, or several with commas (default {DEFAULT_BOOTSTRAP})"
    )
    where.add_argument("--context", metavar="NAME", help="a cluster that `semel context add` has named")
    cluster.add_argument(
        "--set",
        dest="client_settings",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the client, such as security.protocol=SSL; may be repeated",
    )


def client_settings(options: argparse.Namespace) -> dict[str, Any]:
    """Settings for the client: --set wins over the context, and that over the command line's own defaults."""
    settings: dict[str, Any] = dict(_DEFAULTS)
    if options.bootstrap is not None:
        settings["bootstrap_servers"] = options.bootstrap
    else:
        from semel.cli.contexts import Contexts

        settings |= Contexts.read().settings_of(options.context)
    settings |= keyworded(pairs(options.client_settings, "--set"))
    settings.setdefault("bootstrap_servers", DEFAULT_BOOTSTRAP)
    return settings


def is_hasty(settings: Mapping[str, Any]) -> bool:
    """Whether nobody has said how long to wait for a cluster that is not there."""
    return settings.get("bootstrap_timeout_ms") == _DEFAULTS["bootstrap_timeout_ms"]


def pairs(given: Iterable[str], option: str) -> dict[str, str]:
    """NAME=VALUE each."""
    found: dict[str, str] = {}
    for text in given:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise WrongCall(f"{option} {text!r} is not allowed; allowed: NAME=VALUE")
        found[name.strip()] = value.strip()
    return found


def keyworded(settings: dict[str, str]) -> dict[str, str]:
    """With one spelling for each name, so that one can take the place of another: Kafka's has dots."""
    return {name.replace(".", "_"): value for name, value in settings.items()}


def shown_options(options: argparse.Namespace) -> str:
    """The options that lead to the same cluster, to be shown in a command that somebody may paste."""
    import shlex

    shown = [("--bootstrap", options.bootstrap), ("--context", options.context)]
    shown += [("--set", text) for text in options.client_settings if "password" not in text and "jaas" not in text]
    return "".join(f" {name} {shlex.quote(value)}" for name, value in shown if value is not None)


def run(work: Coroutine[Any, Any, int]) -> int:
    """Runs a command that is a coroutine. Ctrl-C and SIGTERM cancel it, so that it leaves groups and transactions in
    order."""
    import asyncio
    import signal

    was_terminated = False

    async def terminable() -> int:
        task = asyncio.current_task()

        def terminate() -> None:
            nonlocal was_terminated
            was_terminated = True
            if task is not None:
                task.cancel()

        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
        return await work

    try:
        return asyncio.run(terminable())
    except asyncio.CancelledError:
        if was_terminated:
            raise Terminated("SIGTERM") from None
        raise


@asynccontextmanager
async def admin_for(options: argparse.Namespace) -> AsyncIterator[Admin]:
    """`async with admin_for(options) as admin: ...`"""
    from semel.cli.waiting import watched_host
    from semel.client.admin.admin import Admin

    settings = client_settings(options)
    with watched_host(gives_up=is_hasty(settings)) as host:
        async with Admin(host=host, **settings) as admin:
            yield admin
