"""Why somebody may not come in."""


class LoginRefused(Exception):
    """Why is for the log; the peer is told that the login failed, and no more."""
