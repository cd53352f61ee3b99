"""OAUTHBEARER (RFC 7628, KIP-342): a token that somebody else has issued, and extensions that the broker may want.

The token comes from the program: a function or a method `token`, plain or async. A plain one runs in a thread, since it
may well ask a server.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from semel.peer.errors import AuthenticationFailed, BadSetting, PeerError, TokenUnavailable
from semel.peer.security.scram import InThread

_TOKEN = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_EXTENSION_NAME = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE = re.compile(r"[\x21-\x7e \t\r\n]+")
_SEPARATOR = "\x01"
_GIVE_UP = b"\x01"
_SHOWN_CHARACTERS = 500


@dataclass(frozen=True)
class OAuthToken:
    """A token with extensions. Its text never shows the token."""

    token: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


TokenProvider: TypeAlias = Callable[[], "str | OAuthToken | Awaitable[str | OAuthToken]"]


class OAuthBearer:
    """One exchange. `provider`: a TokenProvider, or an object with a method `token` and perhaps one `extensions`."""

    name = "OAUTHBEARER"

    def __init__(self, provider: Any, *, in_thread: InThread) -> None:
        self._token: Callable[[], Any] = getattr(provider, "token", provider)
        self._extensions: Callable[[], Any] | None = getattr(provider, "extensions", None)
        if not callable(self._token):
            raise BadSetting(
                "OAUTHBEARER needs sasl_oauth_token_provider: a function, or an object with a method token"
            )
        self._in_thread = in_thread
        self.finished = False
        self.refusal: str | None = None

    async def first(self) -> bytes:
        given = await self._ask(self._token)
        if isinstance(given, OAuthToken):
            token, extensions = given.token, given.extensions
        else:
            token, extensions = given, {} if self._extensions is None else await self._ask(self._extensions) or {}
        if not isinstance(token, str) or not _TOKEN.fullmatch(token):
            raise AuthenticationFailed("the token provider gave no token, or one with characters that none can have")
        pairs = []
        for name, value in extensions.items():
            if not _EXTENSION_NAME.fullmatch(name) or name == "auth" or not _EXTENSION_VALUE.fullmatch(value):
                raise AuthenticationFailed(f"the token provider gave an extension that cannot be sent: {name!r}")
            pairs.append(f"{name}={value}")
        return _SEPARATOR.join(("n,,", f"auth=Bearer {token}", *pairs, "", "")).encode()

    async def _ask(self, question: Callable[[], Any]) -> Any:
        try:
            if inspect.iscoroutinefunction(question):
                return await question()
            answer = await self._in_thread(question)
            return await answer if inspect.isawaitable(answer) else answer
        except PeerError:
            raise
        except OSError as error:  # a server that is not there now may be there later
            raise TokenUnavailable(f"the token provider failed: {error!r}") from error
        except Exception as error:
            raise AuthenticationFailed(f"the token provider failed: {error!r}") from error

    async def next(self, challenge: bytes) -> bytes | None:
        """A broker that agrees says nothing; one that does not says why, and waits for us to give up."""
        if self.refusal is not None:
            raise AuthenticationFailed(self.refusal)
        if not challenge:
            self.finished = True
            return None
        self.refusal = f"the broker refused the token: {_reason(challenge)}"
        return _GIVE_UP


def _reason(challenge: bytes) -> str:
    try:
        told = json.loads(challenge)
        names = ("status", "scope", "openid-configuration")
        return ", ".join(f"{name} {str(told[name])[:_SHOWN_CHARACTERS]!r}" for name in names if told.get(name))
    except (ValueError, AttributeError, RecursionError):
        return repr(challenge[:_SHOWN_CHARACTERS])
