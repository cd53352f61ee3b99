"""From a frame to its handler and back: header, version, decode, handle, encode.

Handlers are imported, and given their roles, before the node serves: later there may be no descriptor left for it. An
API is served on the kinds of listener that `HANDLERS` says; what only the active controller can decide is served with
the parts of the controller, or sent on to it. A handler returns its response, None for no answer, a `Committing` when
the answer only waits for durability, a `Parked` when it comes with something that others do, or a coroutine when it
has to wait.

Requests with many entries are decoded in slices, and long answers encoded in slices (`rpc/long_requests.py`), with the
loop free for others in between. Handlers that work through many items do it with the role `slices`, or give an array
whose elements are made when they are encoded (`wire/lazy.py`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from semel.broker.authoriser import Authoriser
from semel.broker.context import RequestContext
from semel.broker.fetch_lanes import FetchLanes
from semel.broker.handlers import CONTROLLER_HANDLERS, FORWARDABLE, HANDLERS, Served, served_on
from semel.broker.inner_requests import Sender
from semel.broker.produce_lanes import ProduceLanes
from semel.broker.response_errors import count_errors
from semel.broker.roles import ControllerRoles, Roles, with_roles
from semel.controller.image import LOGGER_RESOURCE
from semel.host.api import FileRange
from semel.log.errors import Refused
from semel.metrics.node_counts import RequestCounts
from semel.replication.term_kernel import Generation
from semel.rpc.budget import Owner
from semel.rpc.eager_task import EagerTask
from semel.rpc.long_requests import SMALL_FRAME_BYTES, LongAnswer, LongRequests
from semel.rpc.served import (
    Answer,
    CloseConnection,
    DeferredReply,
    HeldReply,
    Parts,
    PromisedReply,
    ServedConnection,
    all_of,
)
from semel.wire.apis import API, request_class, response_class
from semel.wire.codec import decoder
from semel.wire.errors import ErrorCode, WireError
from semel.wire.frame import RequestHeader, read_request_header, response_parts
from semel.wire.schema import Request, Response
from semel.wire.spec.api_versions import ApiVersion, ApiVersionsResponse
from semel.wire.spec.fetch import FetchRequest, FetchResponse
from semel.wire.spec.incremental_alter_configs import IncrementalAlterConfigsRequest
from semel.wire.spec.produce import ProduceRequest, ProduceResponse

if TYPE_CHECKING:
    from semel.broker.forwarding import Forwarder

_PRODUCE, _FETCH, _API_VERSIONS, _INCREMENTAL_ALTER_CONFIGS = 0, 1, 18, 44
_BEFORE_LOGIN = frozenset((17, 18, 36))  # SaslHandshake, ApiVersions, SaslAuthenticate
_LENGTH_BYTES = 4
# Only records come by the megabyte. A hundred megabytes of tiny array elements would hold the loop for seconds.
_MOST_BYTES_WITHOUT_RECORDS = 8 << 20


class Committing:
    """An answer that is complete but for its durability: the connection's next request may be served meanwhile.
    `after_failure` makes the one that is sent when some of what it waits for has failed."""

    __slots__ = ("after_failure", "response", "waits_for")

    def __init__(
        self, response: Response, waits_for: list[asyncio.Future[None]], after_failure: Callable[[], Response]
    ) -> None:
        self.response = response
        self.waits_for = waits_for
        self.after_failure = after_failure


class _LateRefusal:
    """What is sent instead of an answer whose records were not committed."""

    __slots__ = ("_began_ns", "_committing", "_correlation_id", "_counts", "_version")

    def __init__(self, committing: Committing, correlation_id: int, version: int, counts: RequestCounts) -> None:
        self._counts = counts
        self._began_ns = counts.now_ns()
        self._committing = committing
        self._correlation_id = correlation_id
        self._version = version

    def answered(self, now_ns: int) -> None:
        self._counts.answered(_PRODUCE, now_ns - self._began_ns)

    def after_failure(self) -> bytes:
        response = self._committing.after_failure()
        count_errors(self._counts, _PRODUCE, response)  # only produce requests are answered so
        parts = _parts(self._correlation_id, response, self._version)
        return b"".join(cast(list[bytes], parts))


class Parked(ABC):
    """A request that waits without a task. It answers, or fails, from a callback of the loop of its own."""

    @abstractmethod
    def begin(self, answer: Callable[[Response], None], fail: Callable[[Exception], None]) -> None:
        """Called at once; neither is called before this has returned, and only one of them, once."""

    @abstractmethod
    def leave(self) -> None:
        """Nobody waits for the answer any more."""


class _Route(NamedTuple):
    request_class: type[Request]
    min_version: int
    max_version: int
    handle: Callable[[Any, RequestContext], Any]
    is_forwarded: bool = False  # `handle` may still have a part of it that is decided here
    learns: bool = True  # whether requests like it may take a fast lane


class Router:
    """`controller` are the roles on a node that has a controller, which `decides` while it is active; `forwarder` sends
    on what is decided elsewhere."""

    def __init__(
        self,
        authoriser: Authoriser,
        roles: Roles | None,
        generation: Generation,
        long_requests: LongRequests,
        counts: RequestCounts,
        *,
        controller: ControllerRoles | None = None,
        forwarder: Forwarder | None = None,
        decides: Callable[[], bool] = lambda: False,
    ) -> None:
        self._authoriser = authoriser
        self._long = long_requests
        self._counts = counts
        self._forwarder = forwarder
        self._decides = decides
        self._routes: dict[str, dict[int, _Route]] = {}
        if roles is not None:
            self._lanes = ProduceLanes(roles.cluster, roles.topics, roles.verifier, generation, counts)
            self._fetch_lanes = FetchLanes(roles.node, roles.cluster, roles.topics, authoriser)
            routes = {
                key: _route(served, key, roles if key not in FORWARDABLE or controller is None else controller)
                for key, served in HANDLERS.items()
                if key not in FORWARDABLE or controller is not None
            }
            if controller is None:
                routes |= {key: _forwarded(key, roles) for key in HANDLERS if key in FORWARDABLE}
            elif forwarder is not None:
                routes |= {key: routes[key]._replace(is_forwarded=True) for key in routes if key in FORWARDABLE}
            for listener, kind in roles.listeners.items():
                self._routes[listener] = {
                    key: routes[key]._replace(max_version=served.max_version) for key, served in served_on(kind).items()
                }
        if controller is not None and controller.listeners:
            routes = {
                key: _route(served, key, controller)._replace(learns=False)
                for key, served in CONTROLLER_HANDLERS.items()
            }
            self._inner = {key: route for key, route in routes.items() if key in FORWARDABLE}
            self._routes |= dict.fromkeys(controller.listeners, routes)
            controller.inner_requests.serve_with(self._answer_inner)

    def dispatch(self, connection: ServedConnection, frame: memoryview) -> Answer:
        try:
            header = read_request_header(frame)
            route = self._routes[connection.listener].get(header.api_key)
            if route is None:
                raise CloseConnection(f"API {API[header.api_key].name} is not served here")
            if not connection.is_authenticated and header.api_key not in _BEFORE_LOGIN:
                raise CloseConnection(f"{API[header.api_key].name} before it has logged in, or after its session's end")
            version = header.api_version
            if len(frame) > _MOST_BYTES_WITHOUT_RECORDS and header.api_key != _PRODUCE:
                raise CloseConnection(f"a request of {len(frame)} bytes to {API[header.api_key].name}")
            if not route.min_version <= version <= route.max_version:
                return self._unsupported_version(header.api_key, version, header.correlation_id)
            if route.is_forwarded and self._is_for_another(header, frame):
                return DeferredReply(self._forward(connection, bytes(frame), header))
            if len(frame) <= SMALL_FRAME_BYTES:
                request, _ = decoder(route.request_class, version)(frame, header.body_position)
            else:
                found = self._long.decoded_at_once(route.request_class, version, frame, header.body_position)
                if found is None:
                    return self._serve_long(connection, frame, header, route)
                request = found
        except WireError as error:
            raise CloseConnection(str(error)) from error
        context = RequestContext(connection, version, header.client_id, self._authoriser)
        result = route.handle(request, context)
        if header.api_key == _PRODUCE and isinstance(result, ProduceResponse | Committing):
            told = result.response if isinstance(result, Committing) else result
            self._lanes.learn(connection, frame, cast(ProduceRequest, request), cast(ProduceResponse, told), version)
        key = header.api_key
        if isinstance(result, Response):
            count_errors(self._counts, key, result)
            if header.api_key == _FETCH and route.learns:
                self._fetch_lanes.learn(connection, frame, header, cast(FetchRequest, request))
            elif header.api_key != _PRODUCE:
                return self._answer(header.correlation_id, result, version)
            return _parts(header.correlation_id, result, version)
        if result is None:
            return None
        if isinstance(result, Committing):
            count_errors(self._counts, key, result.response)
            return HeldReply(
                _parts(header.correlation_id, result.response, version),
                all_of(result.waits_for),
                _LateRefusal(result, header.correlation_id, version, self._counts),
            )
        if isinstance(result, Parked):
            return self._parked(result, key, header.correlation_id, version)
        begun = EagerTask(result)
        if begun.is_over:
            if begun.result is None:
                return None
            count_errors(self._counts, key, begun.result)
            return self._answer(header.correlation_id, begun.result, version)
        return DeferredReply(
            begun.in_task_of(self._finish(begun, key, header.correlation_id, version)), holds_request=True
        )

    def _answer(self, correlation_id: int, response: Response, version: int) -> Answer:
        answer = LongAnswer(response, version, correlation_id)
        return answer.parts() if self._long.is_made_at_once(answer) else DeferredReply(self._finished(answer))

    async def _finish(
        self, response: Awaitable[Response | None], key: int, correlation_id: int, version: int
    ) -> Parts | None:
        answer = await response
        if answer is None:
            return None
        count_errors(self._counts, key, answer)
        return await self._finished(LongAnswer(answer, version, correlation_id))

    async def _finished(self, answer: LongAnswer) -> Parts:
        try:
            return await self._long.finished(answer)
        except BaseException:
            if isinstance(answer.response, FetchResponse):
                _release_ranges(answer.response)
            raise

    def _serve_long(
        self, connection: ServedConnection, frame: memoryview, header: RequestHeader, route: _Route
    ) -> Answer:
        # It begins at once: later the frame may not be there any more.
        begun = EagerTask(self._served_long(connection, frame, header, route))
        return begun.result if begun.is_over else DeferredReply(begun.in_task(), holds_request=True)

    async def _served_long(
        self, connection: ServedConnection, frame: memoryview, header: RequestHeader, route: _Route
    ) -> Parts | None:
        """One request with many entries. Its frame stays as it is meanwhile."""
        version = header.api_version
        is_shared = connection.is_shared(frame)
        account = self._long.account(0 if is_shared else len(frame))
        try:
            if is_shared:
                frame = memoryview(bytearray(frame))
                account.take_anyway(len(frame), Owner.REQUEST)
            request = await self._long.decoded(route.request_class, version, frame, header.body_position, account)
            context = RequestContext(connection, version, header.client_id, self._authoriser, is_long=True)
            result = route.handle(request, context)
            # None, a response, or a coroutine: of one that `is_long`, nothing else.
            response = result if result is None or isinstance(result, Response) else await result
            if response is None:
                return None
            count_errors(self._counts, header.api_key, response)
            return await self._finished(LongAnswer(response, version, header.correlation_id))
        finally:
            account.close()

    # -- what the active controller decides

    def _is_for_another(self, header: RequestHeader, frame: memoryview) -> bool:
        """Unless this node decides now. The levels of its loggers are changed here, whoever the controller is."""
        if self._decides():
            return False
        if header.api_key != _INCREMENTAL_ALTER_CONFIGS:
            return True
        cls, version = IncrementalAlterConfigsRequest, header.api_version
        request = self._long.decoded_at_once(cls, version, frame, header.body_position)
        # A node does not have so many loggers that a request for them is long.
        return request is None or all(resource.resource_type != LOGGER_RESOURCE for resource in request.resources)

    async def _forward(self, connection: ServedConnection, frame: bytes, header: RequestHeader) -> Parts:
        assert self._forwarder is not None
        return await self._forwarder.forward(connection, frame, API[header.api_key].name)

    async def _answer_inner(self, frame: memoryview, sender: Sender) -> bytes:
        """A request that came in an envelope; its answer without the length in front."""
        try:
            header = read_request_header(frame)
            route = self._inner.get(header.api_key)
            if route is None:
                raise Refused(ErrorCode.INVALID_REQUEST, f"{API[header.api_key].name} is not for the controller")
            if not route.min_version <= header.api_version <= route.max_version:
                raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"{API[header.api_key].name} {header.api_version}")
            return await self._served_inner(frame, sender, header, route)
        except (WireError, CloseConnection) as error:
            raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error

    async def _served_inner(self, frame: memoryview, sender: Sender, header: RequestHeader, route: _Route) -> bytes:
        version = header.api_version
        account = self._long.account()
        try:
            request = await self._long.decoded(route.request_class, version, frame, header.body_position, account)
            context = RequestContext(
                cast(ServedConnection, sender), version, header.client_id, self._authoriser, is_long=True
            )
            result = route.handle(request, context)
            response = result if isinstance(result, Response) else await result
            parts = await self._long.finished(LongAnswer(response, version, header.correlation_id))
            return b"".join(cast(list[bytes], parts))[_LENGTH_BYTES:]
        finally:
            account.close()

    def _unsupported_version(self, key: int, version: int, correlation_id: int) -> Answer:
        """A client that asks for versions in a version we do not know is told, in the oldest form, what we know."""
        if key != _API_VERSIONS:
            raise CloseConnection(f"{API[key].name} version {version} is not served here")
        served = HANDLERS[_API_VERSIONS]
        known = ApiVersion(api_key=key, min_version=served.min_version, max_version=served.max_version)
        answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[known])
        return _parts(correlation_id, answer, 0)

    def _parked(self, parked: Parked, key: int, correlation_id: int, version: int) -> DeferredReply:
        def answer(response: Response) -> None:
            count_errors(self._counts, key, response)
            later.keep(_parts(correlation_id, response, version))

        later = PromisedReply()
        later.future.add_done_callback(lambda _: parked.leave())
        parked.begin(answer, later.fail)
        return later


def _route(served: Served, key: int, roles: Roles | ControllerRoles) -> _Route:
    handle = import_module(f"semel.broker.handlers.{served.module}").handle
    response_class(key)
    return _Route(request_class(key), served.min_version, served.max_version, with_roles(handle, roles))


def _forwarded(key: int, roles: Roles) -> _Route:
    served = HANDLERS[key]
    if key == _INCREMENTAL_ALTER_CONFIGS:
        return _route(served._replace(module="alter_loggers"), key, roles)._replace(is_forwarded=True)
    return _Route(request_class(key), served.min_version, served.max_version, _nothing, is_forwarded=True)


def _nothing(request: Any, context: RequestContext) -> Any:
    raise AssertionError("it is sent on")


def _release_ranges(response: FetchResponse) -> None:
    """Of an answer that nobody gets."""
    for topic in response.responses:
        for partition in topic.partitions:
            if type(partition.records) is FileRange:
                partition.records.release()


def _parts(correlation_id: int, response: Response, version: int) -> Parts:
    """The only parts without bytes that a handler puts into a response are file ranges, which a link can send."""
    return cast(Parts, response_parts(correlation_id, response, version))
