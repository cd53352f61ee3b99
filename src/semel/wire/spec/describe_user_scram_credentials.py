"""DescribeUserScramCredentials (key 50): which SCRAM credentials users have."""

from semel.wire.schema import I8, I16, I32, Array, Request, Response, Str, Struct


class ScramUser(Struct):
    name: Str = ""


class DescribeUserScramCredentialsRequest(Request, key=50, versions="0", flexible=0):
    users: Array[ScramUser] | None = ()


class ScramCredentialInfo(Struct):
    mechanism: I8 = 0
    iterations: I32 = 0


class DescribeUserScramCredentialsResult(Struct):
    user: Str = ""
    error_code: I16 = 0
    error_message: Str | None = None
    credential_infos: Array[ScramCredentialInfo] = ()


class DescribeUserScramCredentialsResponse(Response, key=50, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    error_message: Str | None = None
    results: Array[DescribeUserScramCredentialsResult] = ()
