"""ListTransactions (key 66): the transactions that a coordinator knows, by state, producer or age."""

from semel.wire.schema import I16, I32, I64, Array, Request, Response, Str, Struct, field


class ListTransactionsRequest(Request, key=66, versions="0-2", flexible=0):
    state_filters: Array[Str] = ()
    producer_id_filters: Array[I64] = ()
    duration_filter: I64 = field(default=-1, since=1)
    transactional_id_pattern: Str | None = field(default=None, since=2)


class ListedTransaction(Struct):
    transactional_id: Str = ""
    producer_id: I64 = 0
    transaction_state: Str = ""


class ListTransactionsResponse(Response, key=66, versions="0-2", flexible=0):
    throttle_time_ms: I32 = 0
    error_code: I16 = 0
    unknown_state_filters: Array[Str] = ()
    transaction_states: Array[ListedTransaction] = ()
