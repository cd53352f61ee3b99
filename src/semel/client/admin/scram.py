"""SCRAM credentials of users: list, set, delete. Passwords do not leave this process, only what they are salted to."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable

from semel.client.admin.admin_requests import AdminPart, names_of, problem_of
from semel.client.admin.outcome import Sheet, admin_error
from semel.client.admin.security_values import ScramCredential, ScramDeletion, ScramMechanism
from semel.client.errors import BadSetting
from semel.peer.security.scram import FEWEST_ITERATIONS, HASHES
from semel.wire.errors import ErrorCode
from semel.wire.spec.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from semel.wire.spec.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ScramUser,
)

_SALT_BYTES = 24
_MOST_ITERATIONS = 16_384
"""What Kafka allows."""


class ScramPart(AdminPart):
    async def describe_user_scram_credentials(
        self, users: str | Iterable[str] | None = None
    ) -> dict[str, dict[ScramMechanism, int]]:
        """Which mechanisms users have a password for, with its iterations; all users, or those named. One without any
        is left out."""
        named = None if users is None else [ScramUser(name=name) for name in names_of(users)]
        if named is not None and not named:
            return {}  # a broker would take nobody for everybody
        answer = await self._ask.one(
            "describing SCRAM credentials",
            DescribeUserScramCredentialsRequest(users=named),
            DescribeUserScramCredentialsResponse,
            route=self._ask.to_controller,
            problem=problem_of,
        )
        sheet: Sheet[str, dict[ScramMechanism, int]] = Sheet(
            [result.user for result in answer.results if result.error_code != ErrorCode.RESOURCE_NOT_FOUND],
            lambda name: f"describing SCRAM credentials of {name!r}",
        )
        for result in answer.results:
            if result.user not in sheet.pending:
                continue
            if result.error_code == ErrorCode.NONE:
                found = {ScramMechanism(info.mechanism): info.iterations for info in result.credential_infos}
                sheet.done(result.user, found)
            else:
                error = admin_error(result.error_code, sheet.doing(result.user), result.error_message)
                sheet.fail(result.user, error)
        return sheet.outcome()

    async def alter_user_scram_credentials(
        self, changes: ScramCredential | ScramDeletion | Iterable[ScramCredential | ScramDeletion]
    ) -> None:
        """Sets and deletes passwords. All changes of a user are made together; each user on its own."""
        many = [changes] if isinstance(changes, ScramCredential | ScramDeletion) else list(changes)
        upsertions: dict[str, list[ScramCredentialUpsertion]] = {}
        deletions: dict[str, list[ScramCredentialDeletion]] = {}
        for change in many:
            if isinstance(change, ScramCredential):
                upsertions.setdefault(change.user, []).append(await self._upsertion(change))
            else:
                deletion = ScramCredentialDeletion(name=change.user, mechanism=change.mechanism)
                deletions.setdefault(change.user, []).append(deletion)
        sheet: Sheet[str, None] = Sheet(
            [change.user for change in many],
            lambda name: f"changing SCRAM credentials of {name!r}",
            made_already=(ErrorCode.RESOURCE_NOT_FOUND,),
        )

        async def ask(node_id: int, users: list[str]) -> None:
            request = AlterUserScramCredentialsRequest(
                deletions=[one for user in users for one in deletions.get(user, ())],
                upsertions=[one for user in users for one in upsertions.get(user, ())],
            )
            answer = await self._ask.cluster.call(node_id, request, AlterUserScramCredentialsResponse)
            for result in answer.results:
                if sheet.accepts(result.user, result.error_code, result.error_message):
                    sheet.done(result.user, None)

        await self._ask.work_off(sheet, self._ask.to_controller, ask)

    async def _upsertion(self, credential: ScramCredential) -> ScramCredentialUpsertion:
        digest = HASHES.get(credential.mechanism.sasl_name)
        if digest is None:
            raise BadSetting(f"{credential!r}: there are {' and '.join(HASHES)}")
        if not FEWEST_ITERATIONS <= credential.iterations <= _MOST_ITERATIONS:
            raise BadSetting(f"{credential!r}: allowed are {FEWEST_ITERATIONS} to {_MOST_ITERATIONS} iterations")
        if not credential.user or not credential.password:
            raise BadSetting(f"{credential!r}: a user name and a password are needed")
        # Not the host's chance, which is for pauses: nobody may foresee a salt.
        salt = secrets.token_bytes(_SALT_BYTES) if credential.salt is None else credential.salt
        salted = await self._ask.cluster.host.jobs.run_in_thread(
            hashlib.pbkdf2_hmac, digest, credential.password.encode(), salt, credential.iterations
        )
        return ScramCredentialUpsertion(
            name=credential.user,
            mechanism=credential.mechanism,
            iterations=credential.iterations,
            salt=salt,
            salted_password=salted,
        )
