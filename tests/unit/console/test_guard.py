"""Who gets in: names of this machine, logins, forged requests, and the headers that bind the browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from semel.console import guard as guard_module
from semel.console.guard import COOKIE, CSRF_HEADER, Guard, Guarded


def client(guard: Guard, base: str = "http://127.0.0.1:8090") -> httpx.AsyncClient:
    async def session(request: Request) -> Response:
        found = guard.session_of(request.cookies.get(COOKIE))
        assert found is not None
        return JSONResponse({"csrf": found.csrf})

    async def change(request: Request) -> Response:
        return JSONResponse({"done": "changed"})

    async def page(request: Request) -> Response:
        return JSONResponse({})

    routes = [
        Route("/api/login", guard.login, methods=["POST"]),
        Route("/api/session", session),
        Route("/api/changes/any", change, methods=["POST"]),
        Route("/{path:path}", page),
    ]
    app = Starlette(routes=routes, middleware=[Middleware(Guarded, guard=guard)])
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=base)


async def csrf(browser: httpx.AsyncClient) -> dict[str, str]:
    return {CSRF_HEADER: (await browser.get("/api/session")).json()["csrf"]}


@pytest.fixture
async def here() -> AsyncIterator[httpx.AsyncClient]:
    async with client(Guard()) as browser:
        yield browser


async def test_every_answer_binds_the_browser(here: httpx.AsyncClient) -> None:
    for answer in (await here.get("/"), await here.get("/api/session"), await here.post("/api/changes/any")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("host", ["localhost:8090", "127.0.0.1:1", "[::1]:8090", "LOCALHOST"])
async def test_this_machine_is_served_under_its_own_names(here: httpx.AsyncClient, host: str) -> None:
    assert (await here.get("/", headers={"host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example:8090", "localhost.evil.example", "127.0.0.1.evil.example:80", ""])
async def test_a_name_of_somebody_else_that_points_here_is_refused(here: httpx.AsyncClient, host: str) -> None:
    assert (await here.get("/api/session", headers={"host": host})).status_code == 403


async def test_a_change_needs_the_token_of_the_session(here: httpx.AsyncClient) -> None:
    assert (await here.post("/api/changes/any")).status_code == 403
    assert (await here.post("/api/changes/any", headers={CSRF_HEADER: "guessed"})).status_code == 403
    assert (await here.post("/api/changes/any", headers=await csrf(here))).status_code == 200


@pytest.mark.parametrize(
    "headers", [{"origin": "http://evil.example"}, {"origin": "null"}, {"sec-fetch-site": "cross-site"}]
)
async def test_a_change_from_another_site_is_refused_even_with_the_token(
    here: httpx.AsyncClient, headers: dict[str, str]
) -> None:
    given = {**await csrf(here), **headers}
    assert (await here.post("/api/changes/any", headers=given)).status_code == 403
    same = {**await csrf(here), "origin": "http://127.0.0.1:8090"}
    assert (await here.post("/api/changes/any", headers=same)).status_code == 200


async def test_with_a_password_nobody_gets_in_without_it() -> None:
    async with client(Guard("right"), "http://console.example") as browser:
        assert (await browser.get("/api/session")).status_code == 401
        page = await browser.get("/topics")
        assert (page.status_code, page.headers["location"]) == (303, "/login")
        assert (await browser.get("/api/session", cookies={COOKIE: "guessed"})).status_code == 401


async def test_the_right_password_makes_a_session_that_scripts_cannot_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "_PAUSE_S", 0)
    async with client(Guard("right"), "http://console.example") as browser:
        wrong = await browser.post("/api/login", json={"password": "wrong"})
        assert wrong.status_code == 401
        answer = await browser.post("/api/login", json={"password": "right"})
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "samesite=strict" in cookie.lower()
        assert (await browser.post("/api/changes/any", headers=await csrf(browser))).status_code == 200


async def test_a_session_does_not_last_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    async with client(Guard("right"), "http://console.example") as browser:
        await browser.post("/api/login", json={"password": "right"})
        assert (await browser.get("/api/session")).status_code == 200
        later = guard_module.time.monotonic() + 13 * 3600
        monkeypatch.setattr(guard_module.time, "monotonic", lambda: later)
        assert (await browser.get("/api/session")).status_code == 401


async def test_passwords_cannot_be_tried_one_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard_module, "_PAUSE_S", 0)
    async with client(Guard("right"), "http://console.example") as browser:
        for _ in range(10):
            assert (await browser.post("/api/login", json={"password": "wrong"})).status_code == 401
        assert (await browser.post("/api/login", json={"password": "right"})).status_code == 429


@pytest.mark.parametrize("given", [{}, [], {"password": 5}])
async def test_a_login_without_a_password_is_refused(given: Any) -> None:
    async with client(Guard("right"), "http://console.example") as browser:
        assert (await browser.post("/api/login", json=given)).status_code == 400
