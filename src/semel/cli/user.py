"""`semel user`: who may log in by SCRAM. A password is read from a file, a variable or the terminal, never from the
command line, which others on the machine can see."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Coroutine
from typing import Any

from semel.cli.connection import add_connection_arguments, admin_for, run
from semel.cli.failures import Exit, WrongCall
from semel.cli.output import Output, add_output_arguments

_VARIABLE = "SEMEL_PASSWORD"
_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_EXAMPLES = f"""A password comes from --password-file, from the variable {_VARIABLE}, or from the terminal.

examples:
  semel user add alice --password-file alice.password
  semel user list
  semel user delete alice
"""

Work = Callable[[argparse.Namespace, Output], Coroutine[Any, Any, int]]


def add_arguments(command: argparse.ArgumentParser) -> None:
    command.epilog = _EXAMPLES
    actions = command.add_subparsers(dest="action", metavar="ACTION", required=True)

    adding = actions.add_parser(
        "add",
        help="let a user log in, or give them another password",
        description="Let a user log in by SCRAM, or give them another password.",
        epilog="example:\n  semel user add alice --password-file alice.password\n",
    )
    adding.add_argument("name", metavar="NAME")
    adding.add_argument("--password-file", metavar="FILE", help="its first line is the password; - is standard input")
    adding.add_argument(
        "--mechanism",
        choices=tuple(_MECHANISMS),
        action="append",
        help="for this mechanism; may be repeated (default: for both)",
    )
    adding.add_argument("--iterations", type=int, default=8192, metavar="N", help="4096 to 16384 (default 8192)")
    _finish(adding, _add)

    listing = actions.add_parser(
        "list",
        help="list users",
        description="List the users that have a password, and for which mechanisms.",
        epilog="example:\n  semel user list --json\n",
    )
    _finish(listing, _list)

    deleting = actions.add_parser(
        "delete",
        help="let a user log in no more",
        description="Delete the passwords of a user. Connections that are logged in go on until their session ends "
        "(connections.max.reauth.ms).",
        epilog="example:\n  semel user delete alice\n",
    )
    deleting.add_argument("name", metavar="NAME")
    _finish(deleting, _delete)


def _finish(parser: argparse.ArgumentParser, work: Work) -> None:
    add_output_arguments(parser)
    add_connection_arguments(parser)
    parser.set_defaults(run=lambda options: run(work(options, Output.of(options))))


async def _add(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.security_values import ScramCredential, ScramMechanism

    password = _password(options.password_file)
    chosen = options.mechanism or list(_MECHANISMS)
    async with admin_for(options) as admin:
        await admin.alter_user_scram_credentials(
            ScramCredential(options.name, password, ScramMechanism(_MECHANISMS[name]), options.iterations)
            for name in dict.fromkeys(chosen)
        )
    if output.is_json:
        output.json({"user": options.name, "mechanisms": sorted(set(chosen))})
    else:
        output.note(f"{options.name} can log in by {' and '.join(sorted(set(chosen)))}")
    return Exit.OK


def _password(path: str | None) -> str:
    if path == "-":
        password = sys.stdin.readline()
    elif path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                password = file.readline()
        except (OSError, UnicodeDecodeError) as error:
            raise WrongCall(f"--password-file {path} cannot be read: {error}") from error
    elif _VARIABLE in os.environ:
        password = os.environ[_VARIABLE]
    elif sys.stdin.isatty():
        import getpass

        password = getpass.getpass("Password: ")
        if getpass.getpass("Once more: ") != password:
            raise WrongCall("the two passwords differ")
    else:
        raise WrongCall(f"there is no password: give --password-file FILE, or set {_VARIABLE}")
    password = password.rstrip("\r\n")
    if not password:
        raise WrongCall("the password is empty")
    return password


async def _list(options: argparse.Namespace, output: Output) -> int:
    async with admin_for(options) as admin:
        users = await admin.describe_user_scram_credentials()
    told = {
        name: {mechanism.sasl_name: iterations for mechanism, iterations in sorted(mechanisms.items())}
        for name, mechanisms in sorted(users.items())
    }
    if output.is_json:
        output.json({"users": told})
    elif told:
        rows = [
            (name, mechanism, iterations) for name, found in told.items() for mechanism, iterations in found.items()
        ]
        output.table(("USER", "MECHANISM", "ITERATIONS"), rows)
    else:
        output.note("nobody has a password: `semel user add NAME` gives one")
    return Exit.OK


async def _delete(options: argparse.Namespace, output: Output) -> int:
    from semel.client.admin.security_values import ScramDeletion

    async with admin_for(options) as admin:
        known = (await admin.describe_user_scram_credentials(options.name)).get(options.name)
        if not known:
            raise WrongCall(f"{options.name} has no password; `semel user list` shows who has one")
        await admin.alter_user_scram_credentials(ScramDeletion(options.name, mechanism) for mechanism in known)
    if output.is_json:
        output.json({"user": options.name, "deleted": sorted(mechanism.sasl_name for mechanism in known)})
    else:
        output.note(f"{options.name} can log in no more")
    return Exit.OK
