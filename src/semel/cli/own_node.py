"""`--local`: a command brings a node of its own, and it is gone when the command ends."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, NamedTuple

from semel.cli.connection import client_settings, is_hasty
from semel.cli.waiting import watched_host
from semel.client.admin.admin import Admin
from semel.host.api import Host
from semel.testing.broker import Broker


class Reached(NamedTuple):
    admin: Admin
    host: Host
    settings: dict[str, Any]
    """For further clients."""


@asynccontextmanager
async def admin_of(options: argparse.Namespace) -> AsyncIterator[Reached]:
    """The cluster that the options name, or with `--local` a node that is started for it."""
    settings = client_settings(options)
    async with AsyncExitStack() as held:
        if options.local:
            broker = await held.enter_async_context(Broker())
            settings["bootstrap_servers"] = broker.bootstrap_servers
        host = held.enter_context(watched_host(gives_up=is_hasty(settings)))
        admin = await held.enter_async_context(Admin(host=host, **settings))
        yield Reached(admin, host, settings)
