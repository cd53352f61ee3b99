"""Why another node cannot be called. What fails once a connection stands is told by `rpc.connection`.

The errors of the client derive from these, so that what a program raises (from a token provider, say) passes through
here unchanged.
"""

from __future__ import annotations

from semel.wire.errors import ErrorCode


class PeerError(Exception):
    """`text` says what happened; `code` is the other node's error code, if it gave one."""

    def __init__(self, text: str, *, code: int | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.code = code


class Unreachable(PeerError):
    """No connection to the node: it cannot be made, it ended at once, or the node is gone from the cluster."""


class TimedOut(PeerError):
    """The node did not take the connection in time."""


class AuthenticationFailed(PeerError):
    """The node did not accept who we say we are, or we did not accept the node."""


class TokenUnavailable(PeerError):
    """The provider of tokens cannot reach its own server now."""


class Unsupported(PeerError):
    """The node serves no version of a request that we can use."""


class BadSetting(PeerError, ValueError):
    """TLS or SASL cannot work with the settings given."""


class Closed(PeerError):
    """Our own side was closed."""


def code_text(code: int) -> str:
    """`NAME: what it means`, also for a code that we do not know."""
    try:
        known = ErrorCode(code)
    except ValueError:
        return f"error code {code}, which this client does not know"
    return f"{known.name}: {known.text}"
