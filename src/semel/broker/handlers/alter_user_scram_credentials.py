"""AlterUserScramCredentials (51), version 0: sets and deletes the passwords of users; each user on its own."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.context import RequestContext
from semel.controller.active_controller import ActiveController
from semel.controller.credentials import users_of
from semel.log.errors import Refused
from semel.wire.spec.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


async def handle(
    request: AlterUserScramCredentialsRequest, context: RequestContext, *, active_controller: ActiveController
) -> AlterUserScramCredentialsResponse:
    try:
        context.authorise_cluster(Operation.ALTER)
    except Refused as refusal:
        return AlterUserScramCredentialsResponse(
            results=[
                AlterUserScramCredentialsResult(user=user, error_code=refusal.code, error_message=refusal.text)
                for user in users_of(request)
            ]
        )
    return await active_controller.alter_credentials(request)
