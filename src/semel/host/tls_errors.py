"""TLS's errors in words that help: OpenSSL names what it saw, not what is wrong."""

from __future__ import annotations

import ssl

# What OpenSSL calls it when the other side sends anything but TLS.
_NOT_TLS = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "HTTPS_PROXY_REQUEST"})


def explained(error: ssl.SSLError, peer: str) -> ssl.SSLError:
    """The same error, its text for people; the original is its cause."""
    told: ssl.SSLError
    what = (error.reason or str(error)).replace("_", " ").lower()
    _, is_alert, alert = what.partition(" alert ")
    if isinstance(error, ssl.SSLCertVerificationError):
        told = ssl.SSLCertVerificationError(f"the certificate of {peer} was not accepted: {error.verify_message}")
    elif error.reason in _NOT_TLS:
        told = ssl.SSLError(f"{peer} does not speak TLS on this port: {what}")
    elif is_alert:
        told = ssl.SSLError(f"{peer} ended TLS and says: {alert}")
    else:
        told = ssl.SSLError(f"TLS with {peer} failed: {what}")
    told.__cause__ = error
    return told
