"""`semel txn trace`: a transaction request by request, and what each request makes the cluster write."""

from __future__ import annotations

import argparse
import asyncio
import textwrap
import uuid
from collections.abc import Mapping
from typing import Any

from semel.cli.failures import Exit
from semel.cli.output import Output, printable
from semel.cli.own_node import admin_of
from semel.client.admin.admin import Admin
from semel.client.admin.settings import AdminSettings
from semel.client.cluster import Cluster
from semel.client.peers import tls_context_for
from semel.client.settings import load
from semel.host.api import Host
from semel.live import own_transaction
from semel.live.proxy import HOST, Proxy
from semel.live.transaction_trace import Step, TransactionTrace
from semel.live.written import Written

_FIRST_GENERATION = {"transaction.version": 1}
_PLAIN = {"SSL": "PLAINTEXT", "SASL_SSL": "SASL_PLAINTEXT"}


async def trace(options: argparse.Namespace, output: Output) -> int:
    async with admin_of(options) as (admin, host, settings):
        await _trace(options, output, host, admin, settings)
    return Exit.OK


async def _trace(
    options: argparse.Namespace, output: Output, host: Host, admin: Admin, settings: Mapping[str, Any]
) -> None:
    connection = load(AdminSettings, settings)
    cluster = Cluster(host, connection)
    is_tls = connection.security_protocol in _PLAIN
    features = _FIRST_GENERATION if options.generation == 1 else {}
    observer = TransactionTrace(cluster, lambda step: _show(output, step))
    tls = tls_context_for(connection) if is_tls else None
    try:
        await cluster.start()
        async with Proxy(observer, features=features, tls=tls) as proxy:
            ports = [
                await proxy.port_for(node.host, node.port, listen=options.listen or 0)
                for node in list(cluster.view.nodes.values())[:1]
            ]
            address = f"{HOST}:{ports[0]}"
            if options.listen:
                output.note(f"clients that are told to bootstrap at {address} are traced; Ctrl-C ends it")
                await asyncio.Event().wait()
            behind = {**settings, "bootstrap_servers": address}
            if is_tls:
                behind["security_protocol"] = _PLAIN[connection.security_protocol]
            used = own_transaction.names(uuid.uuid4().hex[:6])
            try:
                await own_transaction.prepare(admin, settings, used)
                await own_transaction.run(behind, used, commits=not options.abort)
                await observer.ended()
            finally:
                await own_transaction.remove(admin, used)
    finally:
        await cluster.close()


# -- for people


def _show(output: Output, step: Step) -> None:
    if output.is_json:
        output.json_line(step.as_json())
        output.stream.flush()
        return
    if step.api is None:
        output.line(output.paint("    after the answer", "bold"))
    else:
        output.line(f"{step.number:>2}  {output.paint(step.api, 'bold')} v{step.version}  {printable(step.asks)}")
    if step.answer:
        _indented(output, f"-> {step.answer}", "red" if step.is_refused else "cyan")
    for one in step.writes:
        _indented(output, _written_text(one), "green")
    if not step.writes and step.api is not None:
        _indented(output, "writes nothing", "dim")
    output.stream.flush()


def _written_text(one: Written) -> str:
    return f"{one.place} offset {one.offset}: {one.what}"


def _indented(output: Output, text: str, colour: str) -> None:
    lines = textwrap.wrap(printable(text), max(output.columns - 8, 40), subsequent_indent="  ", break_on_hyphens=False)
    for line in lines:
        output.line(f"      {output.paint(line, colour)}")
