"""Who gets in, and what a page may do: host names, logins, forged requests, and the headers that bind the browser.

- Without a login only this machine is served, under its own names: a page from elsewhere that makes its name point
  here is refused.
- With one, a session is a random cookie that scripts cannot read and other sites cannot send.
- A change carries the token of its session in a header, and comes from this origin: no other site can forge one.
- The policy allows scripts and styles from here alone; nothing inline, no frame, no form to elsewhere.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
import time
from collections import deque
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

COOKIE = "semel_console"
CSRF_HEADER = "x-semel-console"
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
_HEADERS = {
    "content-security-policy": _POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
_OWN_NAMES = ("localhost", "127.0.0.1", "[::1]")
_IDLE_S = 12 * 3600.0
_MAX_SESSIONS = 1000
_FAILURES, _FAILURES_WITHIN_S = 10, 60.0
_PAUSE_S = 0.3
_OPEN_TO_ALL = ("/login", "/api/login", "/static/")


@dataclass
class Session:
    csrf: str
    until_s: float


@dataclass
class Guard:
    """`password` None: no login is asked for, and only the own names of this machine are answered."""

    password: str | None = None
    is_https: bool = False
    _sessions: dict[str, Session] = field(default_factory=dict)
    _failures: deque[float] = field(default_factory=lambda: deque(maxlen=_FAILURES))
    _own: Session = field(default_factory=lambda: Session(secrets.token_urlsafe(24), float("inf")))

    def session_of(self, cookie: str | None) -> Session | None:
        if self.password is None:
            return self._own
        session = self._sessions.get(cookie or "")
        if session is None or session.until_s < time.monotonic():
            return None
        session.until_s = time.monotonic() + _IDLE_S
        return session

    async def login(self, request: Request) -> Response:
        now_s = time.monotonic()
        if len(self._failures) == _FAILURES and now_s - self._failures[0] < _FAILURES_WITHIN_S:
            return refused(429, "too many wrong passwords: wait a minute")
        given = await request.json()
        password = given.get("password") if isinstance(given, dict) else None
        if self.password is None or not isinstance(password, str):
            return refused(400, "password is missing")
        if not hmac.compare_digest(password.encode(), self.password.encode()):
            self._failures.append(now_s)
            await asyncio.sleep(_PAUSE_S)
            return refused(401, "that is not the password")
        while len(self._sessions) >= _MAX_SESSIONS:
            del self._sessions[next(iter(self._sessions))]
        cookie = secrets.token_urlsafe(32)
        self._sessions[cookie] = Session(secrets.token_urlsafe(24), now_s + _IDLE_S)
        answer = JSONResponse({"done": "welcome"})
        answer.set_cookie(COOKIE, cookie, httponly=True, samesite="strict", secure=self.is_https, path="/")
        return answer

    def logout(self, request: Request) -> Response:
        self._sessions.pop(request.cookies.get(COOKIE, ""), None)
        answer = JSONResponse({"done": "good bye"})
        answer.delete_cookie(COOKIE, path="/")
        return answer


class Guarded:
    """Stands before the application: no request gets past it that the guard does not let in."""

    def __init__(self, app: ASGIApp, guard: Guard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                given = {name for name, _ in message["headers"]}
                message["headers"] = [
                    *message["headers"],
                    *(
                        (name.encode(), value.encode())
                        for name, value in _HEADERS.items()
                        if name.encode() not in given
                    ),
                ]
            await send(message)

        request = Request(scope)
        answer = self._refusal(request)
        await (answer or self._app)(scope, receive, send_with_headers)

    def _refusal(self, request: Request) -> Response | None:
        path, headers = request.url.path, request.headers
        if self._guard.password is None and not _is_own_name(headers.get("host", "")):
            return refused(403, "the console answers under the names localhost and 127.0.0.1 only")
        is_reading = request.method in ("GET", "HEAD")
        if not is_reading and not _is_same_origin(headers):
            return refused(403, "this came from another site, and nothing was done")
        if path.startswith(_OPEN_TO_ALL):
            return None
        session = self._guard.session_of(request.cookies.get(COOKIE))
        if session is None:
            return refused(401, "log in first") if path.startswith("/api/") else RedirectResponse("/login", 303)
        if not is_reading and not hmac.compare_digest(headers.get(CSRF_HEADER, "").encode(), session.csrf.encode()):
            return refused(403, "this page is from an earlier session: load it again")
        return None


def _is_own_name(host: str) -> bool:
    name = host.rpartition(":")[0] if not host.endswith("]") and ":" in host else host
    return name.lower() in _OWN_NAMES


def _is_same_origin(headers: Headers) -> bool:
    origin = headers.get("origin")
    if origin is not None:
        return origin.partition("://")[2] == headers.get("host")
    return headers.get("sec-fetch-site", "same-origin") == "same-origin"


def refused(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"error": sentence}, status)
