"""AlterUserScramCredentials (key 51): sets and deletes SCRAM credentials of users."""

from semel.wire.schema import I8, I16, I32, Array, Bytes, Request, Response, Str, Struct


class ScramCredentialDeletion(Struct):
    name: Str = ""
    mechanism: I8 = 0


class ScramCredentialUpsertion(Struct):
    name: Str = ""
    mechanism: I8 = 0
    iterations: I32 = 0
    salt: Bytes = b""
    salted_password: Bytes = b""


class AlterUserScramCredentialsRequest(Request, key=51, versions="0", flexible=0):
    deletions: Array[ScramCredentialDeletion] = ()
    upsertions: Array[ScramCredentialUpsertion] = ()


class AlterUserScramCredentialsResult(Struct):
    user: Str = ""
    error_code: I16 = 0
    error_message: Str | None = None


class AlterUserScramCredentialsResponse(Response, key=51, versions="0", flexible=0):
    throttle_time_ms: I32 = 0
    results: Array[AlterUserScramCredentialsResult] = ()
