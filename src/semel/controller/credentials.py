"""Decisions on SCRAM credentials: which are set and deleted, as Kafka's controllers decide. Never a password: clients
send what it is salted to, and what is stored cannot be used to log in."""

from __future__ import annotations

from semel.controller.image import MetadataImage
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from semel.wire.spec.metadata_records import (
    MetadataRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)

SCRAM_CODES = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
SCRAM_NAMES = {code: name for name, code in SCRAM_CODES.items()}
FEWEST_ITERATIONS, MOST_ITERATIONS = 4096, 16_384
_KEY_BYTES = {1: 32, 2: 64}


def users_of(request: AlterUserScramCredentialsRequest) -> list[str]:
    """Each once."""
    return list(dict.fromkeys([one.name for one in request.deletions] + [one.name for one in request.upsertions]))


def alter_credentials(
    image: MetadataImage, request: AlterUserScramCredentialsRequest
) -> tuple[list[MetadataRecord], dict[str, Refused | None]]:
    """Records, and for each user why it was refused: all changes of one user are made, or none."""
    records: list[MetadataRecord] = []
    results: dict[str, Refused | None] = {}
    for user in users_of(request):
        try:
            records += _changes(image, request, user)
            results[user] = None
        except Refused as refusal:
            results[user] = refusal
    return records, results


def _changes(image: MetadataImage, request: AlterUserScramCredentialsRequest, user: str) -> list[MetadataRecord]:
    if not user:
        raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "a user has a name")
    deleted = [one.mechanism for one in request.deletions if one.name == user]
    set_anew = [one for one in request.upsertions if one.name == user]
    mechanisms = deleted + [one.mechanism for one in set_anew]
    if len(set(mechanisms)) < len(mechanisms):
        raise Refused(ErrorCode.DUPLICATE_RESOURCE, f"{user!r}: a mechanism is named more than once")
    for mechanism in mechanisms:
        if mechanism not in SCRAM_NAMES:
            raise Refused(ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {mechanism}")
    from semel.security.scram_server import keys_of  # a node on which nobody logs in does without

    records: list[MetadataRecord] = []
    for mechanism in deleted:
        if (user, mechanism) not in image.credentials:
            raise Refused(ErrorCode.RESOURCE_NOT_FOUND, f"{user!r} has no password for {SCRAM_NAMES[mechanism]}")
        records.append(RemoveUserScramCredentialRecord(name=user, mechanism=mechanism))
    for one in set_anew:
        if not FEWEST_ITERATIONS <= one.iterations <= MOST_ITERATIONS:
            allowed = f"allowed are {FEWEST_ITERATIONS} to {MOST_ITERATIONS}"
            raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, f"{one.iterations} iterations; {allowed}")
        if not one.salt or len(one.salted_password) != _KEY_BYTES[one.mechanism]:
            raise Refused(ErrorCode.UNACCEPTABLE_CREDENTIAL, "the salt or what the password is salted to is missing")
        stored_key, server_key = keys_of(SCRAM_NAMES[one.mechanism], bytes(one.salted_password))
        records.append(
            UserScramCredentialRecord(
                name=user,
                mechanism=one.mechanism,
                salt=bytes(one.salt),
                stored_key=stored_key,
                server_key=server_key,
                iterations=one.iterations,
            )
        )
    return records
