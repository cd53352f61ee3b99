"""What `semel console` does: finds the cluster, listens, says where, and serves until it is ended."""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import json
import os
import secrets
from contextlib import AbstractAsyncContextManager

from semel.cli.connection import admin_for, client_settings, shown_options
from semel.cli.failures import Exit, WrongCall
from semel.client.admin.admin import Admin
from semel.console.app import Console, ConsoleSettings
from semel.console.serving import CannotListen, listen, serve

_API_TIMEOUT_MS = "10000"
"""Nobody looks at an empty page for a minute."""


async def serve_console(options: argparse.Namespace) -> int:
    closing = asyncio.Event()
    if (options.tls_cert is None) != (options.tls_key is None):
        raise WrongCall("--tls-cert and --tls-key go together")
    certificate = None if options.tls_cert is None else (options.tls_cert, options.tls_key)
    for path in certificate or ():
        if not path.is_file():
            raise WrongCall(f"there is no file {path}")
    password, is_new = _password(options)
    options.client_settings = [f"default_api_timeout_ms={_API_TIMEOUT_MS}", *options.client_settings]

    def make_admin() -> AbstractAsyncContextManager[Admin]:
        return admin_for(options)

    try:
        listening = listen(options.host, options.port)
    except CannotListen as error:
        raise WrongCall(str(error)) from None
    with listening:
        async with make_admin() as admin:
            settings = ConsoleSettings(
                allows_changes=options.allow_changes,
                password=password,
                is_https=certificate is not None,
                shown_cluster=str(client_settings(options)["bootstrap_servers"]),
                command_options=_shown_options(options),
            )
            console = Console(settings, admin, make_admin, closing)
            console.watch.start()
            if options.stop_at_eof:
                _stop_at_eof(asyncio.current_task())
            _tell(options, listening.getsockname()[1], settings, password if is_new else None)
            try:
                await serve(console.app(), listening, closing, certificate)
            finally:
                await console.watch.close()
    return Exit.OK


def _shown_options(options: argparse.Namespace) -> str:
    given = argparse.Namespace(**vars(options))
    given.client_settings = options.client_settings[1:]
    return shown_options(given)


def _password(options: argparse.Namespace) -> tuple[str | None, bool]:
    """None: no login. True: it was made just now, and has to be told."""
    if options.password_file is not None:
        try:
            password = options.password_file.read_text().strip()
        except OSError as error:
            raise WrongCall(f"--password-file {options.password_file}: {error.strerror}") from None
        if not password:
            raise WrongCall(f"--password-file {options.password_file} is empty; allowed: a file with a password")
        return password, False
    if _is_loopback(options.host):
        return None, False
    return secrets.token_urlsafe(12), True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _tell(options: argparse.Namespace, port: int, settings: ConsoleSettings, new_password: str | None) -> None:
    scheme = "https" if settings.is_https else "http"
    host = "localhost" if _is_loopback(options.host) else options.host
    url = f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
    if options.json:
        told = {"event": "ready", "url": url, "allows_changes": settings.allows_changes}
        print(json.dumps(told | ({} if new_password is None else {"password": new_password})), flush=True)
        return
    what = "shows and changes" if settings.allows_changes else "shows"
    print(f"the console {what} {settings.shown_cluster} at {url}", flush=True)
    if new_password is not None:
        print(f"password: {new_password}", flush=True)
    if settings.password is not None and not settings.is_https and not _is_loopback(options.host):
        print("without --tls-cert the password crosses the network as it is", flush=True)


def _stop_at_eof(task: asyncio.Task[None] | None) -> None:
    loop = asyncio.get_running_loop()

    def readable() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            if task is not None:
                task.cancel()

    loop.add_reader(0, readable)
