"""`--add-scram` of `semel storage format`, in Kafka's form: MECHANISM=[name=NAME,password=PASSWORD,iterations=N]."""

from __future__ import annotations

import re
import secrets
from base64 import b64decode
from typing import TYPE_CHECKING

from semel.cli.failures import WrongCall

if TYPE_CHECKING:
    from semel.wire.spec.metadata_records import UserScramCredentialRecord

FORM = "SCRAM-SHA-512=[name=NAME,password-file=FILE]; also password=, iterations= and salt="
_ARGUMENT = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", re.DOTALL)
_NAMES = ("name", "password", "password-file", "iterations", "salt")
_SALT_BYTES = 24


def credential_record(text: str) -> UserScramCredentialRecord:
    """The record of one user. What is wrong is told without the password."""
    from semel.controller.credentials import FEWEST_ITERATIONS, MOST_ITERATIONS, SCRAM_CODES
    from semel.security.scram_server import credential_of
    from semel.wire.spec.metadata_records import UserScramCredentialRecord

    found = _ARGUMENT.fullmatch(text.strip())
    if found is None:
        raise _wrong("it is not of that form")
    mechanism, parts = found.groups()
    given: dict[str, str] = {}
    for part in parts.split(","):
        name, equals, value = part.partition("=")
        if name.strip() not in _NAMES or not equals or name.strip() in given:
            raise _wrong(f"one of its parts is not one of {', '.join(_NAMES)}, or is there twice")
        given[name.strip()] = value.strip().removeprefix('"').removesuffix('"')
    password = _password(given)
    iterations = given.get("iterations", str(FEWEST_ITERATIONS * 2))
    if not iterations.isdigit() or not FEWEST_ITERATIONS <= int(iterations) <= MOST_ITERATIONS:
        raise _wrong(f"iterations are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}")
    if not given.get("name"):
        raise _wrong("there is no name")
    try:
        salt = b64decode(given["salt"], validate=True) if "salt" in given else secrets.token_bytes(_SALT_BYTES)
    except ValueError:
        raise _wrong("the salt is not base64") from None
    credential = credential_of(mechanism, password, salt, int(iterations))
    return UserScramCredentialRecord(
        name=given["name"],
        mechanism=SCRAM_CODES[mechanism],
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _password(given: dict[str, str]) -> str:
    password = given.get("password", "")
    path = given.get("password-file")
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                password = file.readline().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise _wrong(f"{path} cannot be read: {error}") from error
    if not password:
        raise _wrong("there is no password")
    return password


def _wrong(why: str) -> WrongCall:
    return WrongCall(f"--add-scram: {why}; allowed: {FORM}")
