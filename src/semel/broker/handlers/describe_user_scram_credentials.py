"""DescribeUserScramCredentials (50), version 0: which users have a password, and for which mechanisms."""

from __future__ import annotations

from semel.broker.authoriser import Operation
from semel.broker.cluster_view import ClusterView
from semel.broker.context import RequestContext
from semel.log.errors import Refused
from semel.wire.errors import ErrorCode
from semel.wire.spec.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
    ScramCredentialInfo,
)


def handle(
    request: DescribeUserScramCredentialsRequest, context: RequestContext, *, cluster: ClusterView
) -> DescribeUserScramCredentialsResponse:
    try:
        context.authorise_cluster(Operation.DESCRIBE)
    except Refused as refusal:
        return DescribeUserScramCredentialsResponse(error_code=refusal.code, error_message=refusal.text)
    known: dict[str, list[ScramCredentialInfo]] = {}
    for (name, mechanism), credential in sorted(cluster.image.credentials.items()):
        known.setdefault(name, []).append(ScramCredentialInfo(mechanism=mechanism, iterations=credential.iterations))
    named = [one.name for one in request.users or ()]
    return DescribeUserScramCredentialsResponse(
        results=[
            _result(name, known.get(name), is_repeated=named.count(name) > 1) for name in dict.fromkeys(named or known)
        ]
    )


def _result(
    name: str, infos: list[ScramCredentialInfo] | None, *, is_repeated: bool
) -> DescribeUserScramCredentialsResult:
    code, text = ErrorCode.NONE, None
    if is_repeated:
        code, text = ErrorCode.DUPLICATE_RESOURCE, f"{name!r} is named more than once"
    elif infos is None:
        code, text = ErrorCode.RESOURCE_NOT_FOUND, f"{name!r} has no SCRAM credentials"
    told = () if code else infos or ()
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=text, credential_infos=told)
