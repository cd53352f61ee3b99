"""`semel console`: the web console, as a process of its own."""

from __future__ import annotations

import argparse
from pathlib import Path

from semel.cli.connection import add_connection_arguments, run
from semel.cli.failures import CommandFailed

_EXAMPLES = """It shows any cluster that speaks Kafka's protocol. Other machines reach it with --host only, and then it
asks for a password: the one in --password-file, or a new one that is printed at each start.

examples:
  semel console
  semel console --allow-changes
  semel console --bootstrap kafka-1:9092 --port 0
  semel console --host 0.0.0.0 --password-file /run/secrets/console --tls-cert cert.pem --tls-key key.pem
"""


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    command.add_argument("--host", default="127.0.0.1", metavar="ADDRESS", help="to listen on (default 127.0.0.1)")
    command.add_argument(
        "--port", type=int, default=8090, metavar="N", help="to listen on (default 8090, 0 picks a free one)"
    )
    command.add_argument("--allow-changes", action="store_true", help="topics, groups and transactions can be changed")
    command.add_argument("--password-file", type=Path, metavar="FILE", help="ask for the password in it")
    command.add_argument("--tls-cert", type=Path, metavar="FILE", help="serve https with this certificate (PEM)")
    command.add_argument("--tls-key", type=Path, metavar="FILE", help="and its key")
    command.add_argument("--json", action="store_true", help="say in JSON that it is ready")
    command.add_argument(
        "--stop-at-eof", action="store_true", help="stop when standard input ends: with whoever holds the pipe"
    )
    command.add_argument("--debug", action="store_true", help="tell what the client does, and where an error came from")
    add_connection_arguments(command)
    command.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    try:
        import starlette
        import uvicorn
    except ImportError as error:
        raise CommandFailed(
            f"the console needs {error.name}, which is not installed; to install what it needs: "
            "pip install 'semel[console]'"
        ) from None
    del starlette, uvicorn
    from semel.cli.console_serving import serve_console

    return run(serve_console(options))
