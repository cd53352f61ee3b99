"""One connection to a broker, seen from the client: requests out, answers in, each paired with its request.

Brokers answer in order, so the oldest request is the next to be answered. A request that is not answered in time ends
the connection: a later answer could no longer be told from the one that is missing. A frame larger than the limit ends
it too; memory for one that is allowed is taken as it fills. Whoever sends watches `in_flight`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from struct import Struct
from typing import Any, TypeVar

from semel.host.api import Link
from semel.records.kernel import unfilled
from semel.wire.apis import API
from semel.wire.errors import ErrorCode, WireError
from semel.wire.frame import read_response, request_parts
from semel.wire.schema import Request, Response
from semel.wire.spec.api_versions import ApiVersionsRequest, ApiVersionsResponse

logger = logging.getLogger("semel.rpc")

R = TypeVar("R", bound=Response)

_LENGTH = Struct(">i")
_ERROR_AFTER_CORRELATION = Struct(">ih")
_SMALLEST_FRAME_BYTES = 4
_READ_BYTES = 64 << 10
_CORRELATION_LIMIT = 1 << 31


class Disconnected(ConnectionError):
    """The connection ended before the answer came: nobody knows whether the request was served."""


class NoAnswer(TimeoutError):
    """The broker did not answer in time. The connection is closed."""


class VersionNotServed(Exception):
    """The broker does not serve a version of the request that we can use."""


class _Pending:
    __slots__ = ("correlation_id", "decode", "future", "name", "timer")

    def __init__(self, correlation_id: int, name: str, decode: Callable[[memoryview], tuple[int, Any]]) -> None:
        self.correlation_id = correlation_id
        self.name = name
        self.decode = decode
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.timer: asyncio.TimerHandle | None = None


class Connection:
    """Also the Receiver of its Link. `ended`, if given, is called once, when the connection is no longer of use."""

    def __init__(
        self,
        link: Link,
        *,
        client_id: str | None,
        max_frame_bytes: int,
        ended: Callable[[Connection], None] | None = None,
    ) -> None:
        self.link = link
        self.is_open = True
        self.versions: dict[int, tuple[int, int]] = {}
        self.features: dict[str, int] = {}
        self.throttled_until_s = 0.0
        self.drained_callback: Callable[[], None] | None = None
        """Called when everything that had to wait is handed to the network."""
        self._client_id = client_id
        self._max_frame_bytes = max_frame_bytes
        self._ended = ended
        self._loop = asyncio.get_running_loop()
        self._pending: deque[_Pending] = deque()
        self._held_back: deque[tuple[Request, int, _Pending | None]] | None = None
        self._last_correlation_id = 0
        self._small = memoryview(bytearray(_READ_BYTES))
        self._held = 0  # bytes at the start of `_small` that are not a whole frame yet
        self._frame: memoryview | None = None
        self._filled = 0
        link.start(self)

    def __repr__(self) -> str:
        return f"Connection({self.link.peer})"

    @property
    def in_flight(self) -> int:
        return len(self._pending) + len(self._held_back or ())

    # -- versions

    async def negotiate(self, software_name: str, software_version: str, timeout_s: float) -> None:
        """Learns which versions the broker serves: the newest form of the question first, then the one it names."""
        version = API[ApiVersionsRequest.api_key].max_version
        request = ApiVersionsRequest(client_software_name=software_name, client_software_version=software_version)
        answer = await self._ask_versions(request, version, timeout_s)
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            known = [entry.max_version for entry in answer.api_keys if entry.api_key == ApiVersionsRequest.api_key]
            version = max(min(version, known[0] if known else 0), 0)
            answer = await self._ask_versions(request, version, timeout_s)
        if answer.error_code != ErrorCode.NONE:
            raise VersionNotServed(f"{self.link.peer} answers the question for its versions with {answer.error_code}")
        self.versions = {entry.api_key: (entry.min_version, entry.max_version) for entry in answer.api_keys}
        self.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}

    def _ask_versions(
        self, request: ApiVersionsRequest, version: int, timeout_s: float
    ) -> asyncio.Future[ApiVersionsResponse]:
        return self._send(request, version, partial(_read_versions, version), timeout_s)

    def version_of(self, request: type[Request], *, at_least: int = 0, at_most: int = 1 << 15) -> int:
        """The newest version that both sides know. Raises VersionNotServed if there is none."""
        api = API[request.api_key]
        served = self.versions.get(request.api_key)
        if served is not None:
            version = min(api.max_version, served[1], at_most)
            if version >= max(api.min_version, served[0], at_least):
                return version
        what = "not at all" if served is None else f"only in versions {served[0]} to {served[1]}"
        wanted = f"{max(api.min_version, at_least)} to {min(api.max_version, at_most)}"
        raise VersionNotServed(f"{self.link.peer} serves {api.name} {what}, needed is one of {wanted}")

    # -- requests

    def send(
        self, request: Request, version: int, response: type[R], timeout_s: float, *, is_login: bool = False
    ) -> asyncio.Future[R]:
        """Sends at once. The future fails with Disconnected, NoAnswer or WireError; cancelling it is allowed."""
        return self._send(request, version, partial(read_response, response, version), timeout_s, is_login)

    @contextmanager
    def only_login(self) -> Iterator[None]:
        """Until the end of this, requests other than the login's wait: a broker takes none in the midst of it."""
        self._held_back = deque()
        try:
            yield
        finally:
            held_back, self._held_back = self._held_back, None
            for request, version, pending in held_back if self.is_open else ():
                self._put(request, version, pending)

    def send_unanswered(self, request: Request, version: int) -> None:
        """For a request that the broker does not answer: a produce with acks 0."""
        if not self.is_open:
            raise Disconnected(f"the connection to {self.link.peer} has ended")
        if self._held_back is not None:
            self._held_back.append((request, version, None))
        else:
            self._put(request, version, None)

    def _put(self, request: Request, version: int, pending: _Pending | None) -> None:
        correlation_id = self._next_id()
        parts = request_parts(request, version, correlation_id, self._client_id)
        if pending is not None:
            pending.correlation_id = correlation_id
            self._pending.append(pending)
        self.link.send(parts)  # type: ignore[arg-type]

    def _send(
        self,
        request: Request,
        version: int,
        decode: Callable[[memoryview], tuple[int, Any]],
        timeout_s: float,
        is_login: bool = False,
    ) -> asyncio.Future[Any]:
        if not self.is_open:
            raise Disconnected(f"the connection to {self.link.peer} has ended")
        pending = _Pending(-1, API[request.api_key].name, decode)
        if self._held_back is not None and not is_login:
            self._held_back.append((request, version, pending))
        else:
            self._put(request, version, pending)
        pending.timer = self._loop.call_later(timeout_s, self._timed_out, pending, timeout_s)
        return pending.future

    def _next_id(self) -> int:
        self._last_correlation_id = (self._last_correlation_id + 1) % _CORRELATION_LIMIT
        return self._last_correlation_id

    def _timed_out(self, pending: _Pending, timeout_s: float) -> None:
        text = f"{self.link.peer} did not answer {pending.name} within {timeout_s:g} s"
        if not pending.future.done():
            pending.future.set_exception(NoAnswer(text))
        self._end(NoAnswer(text))
        self.link.close()

    # -- answers

    def get_buffer(self) -> memoryview:
        if self._frame is not None:
            return self._frame[self._filled :]
        return self._small[self._held :]

    def received(self, count: int) -> None:
        if self._frame is not None:
            self._filled += count
            if self._filled == len(self._frame):
                frame, self._frame = self._frame, None
                self._answered(frame)
            return
        data = self._small
        position, end = 0, self._held + count
        while end - position >= 4 and self.is_open:
            (length,) = _LENGTH.unpack_from(data, position)
            if not _SMALLEST_FRAME_BYTES <= length <= self._max_frame_bytes:
                self._break(f"it announced an answer of {length} bytes; allowed are up to {self._max_frame_bytes}")
                return
            start = position + 4
            there = min(end - start, length)
            if there < length:
                # Answers may be kept, and their records are views of them: each has memory of its own.
                self._frame = memoryview(unfilled(length))
                self._frame[:there] = data[start:end]
                self._filled = there
                self._held = 0
                return
            self._answered(memoryview(bytes(data[start : start + length])))
            position = start + length
        self._held = end - position
        data[: self._held] = bytes(data[position:end])

    def _answered(self, frame: memoryview) -> None:
        if not self._pending:
            self._break("it answered a question that was never asked")
            return
        pending = self._pending[0]
        try:
            correlation_id, response = pending.decode(frame)
        except WireError as error:
            self._break(f"its answer to {pending.name} cannot be read: {error}", error)
            return
        if correlation_id != pending.correlation_id:
            self._break(f"it answered request {correlation_id}, but {pending.correlation_id} was next")
            return
        self._pending.popleft()
        if pending.timer is not None:
            pending.timer.cancel()
        throttle_ms = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.throttled_until_s = max(self.throttled_until_s, self._loop.time() + throttle_ms / 1000)
        if not pending.future.done():
            pending.future.set_result(response)

    def drained(self) -> None:
        if self.drained_callback is not None:
            self.drained_callback()

    # -- ending

    def _break(self, why: str, error: BaseException | None = None) -> None:
        """The broker broke the protocol: nothing that follows can be trusted."""
        logger.warning("closing the connection to %s: %s", self.link.peer, why)
        broken = WireError(why)
        broken.__cause__ = error
        self._end(broken)
        self.link.close()

    def close(self) -> None:
        """Ends now; what is not answered yet fails with Disconnected."""
        self._end(None)
        self.link.close()

    def closed(self, reason: BaseException | None) -> None:
        self._end(reason)

    def _end(self, reason: BaseException | None) -> None:
        if not self.is_open:
            return
        self.is_open = False
        self._frame = None
        text = f"the connection to {self.link.peer} ended" + (f": {reason}" if reason is not None else "")
        held_back = [pending for _, _, pending in self._held_back or () if pending is not None]
        for pending in (*self._pending, *held_back):
            if pending.timer is not None:
                pending.timer.cancel()
            if not pending.future.done():
                lost = Disconnected(f"{text} before {pending.name} was answered")
                lost.__cause__ = reason
                pending.future.set_exception(lost)
                pending.future.exception()  # whoever gave up on it need not be told that nobody looked
        self._pending.clear()
        if self._ended is not None:
            self._ended(self)


def _read_versions(version: int, frame: memoryview) -> tuple[int, ApiVersionsResponse]:
    """A broker that does not know our version of the question answers in the oldest form."""
    if len(frame) >= _ERROR_AFTER_CORRELATION.size:
        _, code = _ERROR_AFTER_CORRELATION.unpack_from(frame)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    return read_response(ApiVersionsResponse, version, frame)
