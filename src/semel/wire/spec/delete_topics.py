"""DeleteTopics (key 20): deletes topics, from version 6 on by name or by id."""

from semel.wire.schema import I16, I32, NO_UUID, Array, Request, Response, Str, Struct, Uuid, field


class DeleteTopicState(Struct):
    name: Str | None = None
    topic_id: Uuid = NO_UUID


class DeleteTopicsRequest(Request, key=20, versions="1-6", flexible=4):
    topics: Array[DeleteTopicState] = field(default=(), since=6)
    topic_names: Array[Str] = field(default=(), until=5)
    timeout_ms: I32 = 0


class DeletableTopicResult(Struct):
    name: Str | None = field(default="", nullable_since=6)
    topic_id: Uuid = field(default=NO_UUID, since=6)
    error_code: I16 = 0
    error_message: Str | None = field(default=None, since=5)


class DeleteTopicsResponse(Response, key=20, versions="1-6", flexible=4):
    throttle_time_ms: I32 = 0
    responses: Array[DeletableTopicResult] = ()
