"""The application: which path is answered by what, and how failures are told."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from semel import __version__
from semel.client.admin.admin import Admin
from semel.client.errors import SemelError
from semel.console.api import changes, groups, messages, nodes, overview, topics, transactions
from semel.console.guard import COOKIE, Guard, Guarded, refused
from semel.console.live import documents, tail
from semel.console.query import Query
from semel.console.watch import Watch
from semel.views.refusals import Misasked, Missing, Refusal

logger = logging.getLogger("semel.console")

STATIC = Path(__file__).parent / "static"
_MAX_STREAMS = 64
_MAX_BODY_BYTES = 1 << 20
_PATIENCE_S = 20.0

View = Callable[[Watch, Query], Awaitable[dict[str, Any]]]

VIEWS: Mapping[str, tuple[View, float]] = {
    "overview": (overview.overview, 2.0),
    "topics": (topics.topics, 3.0),
    "topic": (topics.topic, 2.0),
    "producers": (topics.producers, 3.0),
    "messages": (messages.messages, 5.0),
    "message": (messages.message, 5.0),
    "groups": (groups.groups, 3.0),
    "group": (groups.group, 2.0),
    "reset-plan": (groups.reset_plan, 5.0),
    "transactions": (transactions.transactions, 1.0),
    "transaction": (transactions.transaction, 1.0),
    "nodes": (nodes.nodes, 2.0),
    "node-settings": (nodes.node_settings, 10.0),
}
"""By name, with how often a page that follows it is brought up to date, in seconds."""


@dataclass(frozen=True)
class ConsoleSettings:
    """`shown_cluster` is how the page names the cluster; commands that it shows carry `command_options`."""

    allows_changes: bool = False
    password: str | None = None
    is_https: bool = False
    shown_cluster: str = ""
    command_options: str = ""


class Console:
    """`make_admin` gives whoever follows records connections of its own. `watch` is started and closed by the owner."""

    def __init__(
        self,
        settings: ConsoleSettings,
        admin: Admin,
        make_admin: Callable[[], AbstractAsyncContextManager[Admin]],
        closing: asyncio.Event | None = None,
    ) -> None:
        self.guard = Guard(settings.password, settings.is_https)
        self._settings = settings
        self._make_admin = make_admin
        self._closing = asyncio.Event() if closing is None else closing
        self.watch = Watch(admin)
        self._streams = 0

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/session", self._session),
                Route("/api/login", self.guard.login, methods=["POST"]),
                Route("/api/logout", self._logout, methods=["POST"]),
                Route("/api/tail", self._tail),
                Route("/api/live/{view}", self._live),
                Route("/api/changes/{change}", self._change, methods=["POST"]),
                Route("/api/{view}", self._view),
                Route("/login", self._login_page),
                Mount("/static", _Files(directory=STATIC)),
                Route("/{path:path}", self._page),
            ],
            middleware=[Middleware(Guarded, guard=self.guard), Middleware(_CompressedDocuments)],
        )

    # -- documents

    async def _view(self, request: Request) -> Response:
        name = request.path_params["view"]
        if name not in VIEWS:
            return refused(404, f"there is no view {name!r}")
        view, _ = VIEWS[name]
        return await _told(lambda: view(self.watch, Query(request.query_params)))

    async def _live(self, request: Request) -> Response:
        name = request.path_params["view"]
        if name not in VIEWS:
            return refused(404, f"there is no view {name!r}")
        view, every_s = VIEWS[name]
        query = Query(request.query_params)
        return self._stream(documents(lambda: view(self.watch, query), every_s, self._closing))

    async def _tail(self, request: Request) -> Response:
        return self._stream(
            tail(self._make_admin, Query(request.query_params), self._closing, request.headers.get("last-event-id", ""))
        )

    def _stream(self, events: AsyncIterator[str]) -> Response:
        if self._streams >= _MAX_STREAMS:
            return refused(503, f"{_MAX_STREAMS} pages are live already: close some")

        async def counted() -> AsyncIterator[str]:
            self._streams += 1
            try:
                async for one in events:
                    yield one
            finally:
                self._streams -= 1

        return StreamingResponse(counted(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    # -- changes

    async def _change(self, request: Request) -> Response:
        if not self._settings.allows_changes:
            return refused(403, "this console only shows: to change things, start it with --allow-changes")
        try:
            body = await _body(request)
            given = json.loads(body)
        except ValueError as error:
            return refused(400, f"the request is not JSON: {error}")
        if not isinstance(given, dict):
            return refused(400, "the request is no JSON object")

        async def done() -> dict[str, Any]:
            return {"done": await changes.change(self.watch, request.path_params["change"], given)}

        return await _told(done)

    # -- pages

    async def _session(self, request: Request) -> Response:
        session = self.guard.session_of(request.cookies.get(COOKIE))
        assert session is not None
        return JSONResponse(
            {
                "csrf": session.csrf,
                "allows_changes": self._settings.allows_changes,
                "has_login": self._settings.password is not None,
                "cluster": self._settings.shown_cluster,
                "command_options": self._settings.command_options,
                "version": __version__,
            },
            headers={"cache-control": "no-store"},
        )

    async def _logout(self, request: Request) -> Response:
        return self.guard.logout(request)

    async def _login_page(self, request: Request) -> Response:
        return FileResponse(STATIC / "login.html", headers={"cache-control": "no-cache"})

    async def _page(self, request: Request) -> Response:
        if request.path_params["path"].startswith("api/"):
            return refused(404, "there is nothing here")
        return FileResponse(STATIC / "index.html", headers={"cache-control": "no-cache"})


async def _told(ask: Callable[[], Awaitable[dict[str, Any]]]) -> Response:
    try:
        async with asyncio.timeout(_PATIENCE_S):
            return JSONResponse(await ask(), headers={"cache-control": "no-store"})
    except Missing as error:
        return refused(404, str(error))
    except Misasked as error:
        return refused(400, str(error))
    except Refusal as error:
        return refused(409, str(error))
    except SemelError as error:
        return refused(502, str(error))
    except TimeoutError:
        return refused(504, f"the cluster did not answer within {_PATIENCE_S:g} s")


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MAX_BODY_BYTES:
            raise ValueError(f"it is longer than {_MAX_BODY_BYTES} bytes")
    return bytes(body)


class _Files(StaticFiles):
    """Asked for again after an upgrade, and not loaded again otherwise."""

    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        answer = super().file_response(*args, **kwargs)
        answer.headers["cache-control"] = "no-cache"
        return answer


class _CompressedDocuments:
    """What streams is sent as it comes."""

    def __init__(self, app: Any) -> None:
        self._plain, self._zipped = app, GZipMiddleware(app, minimum_size=2000)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_stream = scope.get("path", "").startswith(("/api/live/", "/api/tail"))
        await (self._plain if is_stream else self._zipped)(scope, receive, send)
