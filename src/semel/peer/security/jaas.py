"""Kafka's JAAS line (`sasl.jaas.config`), as Java programs have it: read for user and password, and for nothing else.

`<module> <flag> name="value" ... ;` Values may be quoted, with Java's escapes; `//` and `/* */` are comments.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from semel.peer.errors import BadSetting

MECHANISMS_OF = {"PlainLoginModule": ("PLAIN",), "ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512")}
_REFUSED = {
    "Krb5LoginModule": "Kerberos (GSSAPI) is not supported: log in by SCRAM, PLAIN, OAUTHBEARER or a TLS certificate",
    "OAuthBearerLoginModule": "tokens come from sasl_oauth_token_provider: give a function that returns one",
}
_FLAGS = ("required", "requisite", "sufficient", "optional")
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}
_TOKENS = re.compile(
    r"""(?P<blank>\s+|//[^\n]*|/\*.*?\*/)|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'"""
    r"""|(?P<word>[^\s="';]+)|(?P<sign>[=;])""",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)


class Login(NamedTuple):
    module: str
    options: dict[str, str]

    @property
    def short_name(self) -> str:
        return self.module.rpartition(".")[2]


def user_and_password(text: str, mechanism: str) -> tuple[str, str, bool]:
    """User, password, and whether they are those of a delegation token. The line must be one for this mechanism."""
    login = read_jaas(text)
    if login.short_name in _REFUSED:
        raise BadSetting(f"sasl_jaas_config: {_REFUSED[login.short_name]}")
    mechanisms = MECHANISMS_OF.get(login.short_name)
    if mechanisms is None:
        raise BadSetting(
            f"sasl_jaas_config: the module {login.module} is not known; known are {' and '.join(MECHANISMS_OF)}"
        )
    if mechanism not in mechanisms:
        raise BadSetting(f"sasl_jaas_config: {login.short_name} is for {' and '.join(mechanisms)}, not for {mechanism}")
    missing = [name for name in ("username", "password") if not login.options.get(name)]
    if missing:
        raise BadSetting(f"sasl_jaas_config: {' and '.join(missing)} missing")
    is_token = login.options.get("tokenauth", "false").lower() == "true"
    return login.options["username"], login.options["password"], is_token


def read_jaas(text: str) -> Login:
    """The one entry of the line. Errors name the place and never show what stands there: it may be a password."""
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True):
        raise BadSetting('sasl_jaas_config: it reads <module> required username="..." password="..." ; and ends with ;')
    (module, _), (flag, _), *rest = tokens[:-1]
    if flag.lower() not in _FLAGS:
        raise BadSetting(f"sasl_jaas_config: after the module comes one of {', '.join(_FLAGS)}")
    if (";", True) in rest:
        raise BadSetting("sasl_jaas_config: it holds more than one entry")
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise BadSetting("sasl_jaas_config: an option is not of the form name=value")
    for start in range(0, len(rest), 3):
        (name, is_sign), equals, (value, is_value_sign) = rest[start : start + 3]
        if is_sign or is_value_sign or equals != ("=", True):
            raise BadSetting(f"sasl_jaas_config: option {start // 3 + 1} is not of the form name=value")
        if name in options:
            raise BadSetting(f"sasl_jaas_config: {name} is given twice")
        options[name] = value
    return Login(module, options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """Words and signs, and which of them are signs."""
    tokens = []
    position = 0
    while position < len(text):
        found = _TOKENS.match(text, position)
        if found is None:
            raise BadSetting(
                f"sasl_jaas_config: character {position + 1} opens a quote or a comment that is not closed"
            )
        position = found.end()
        if found.lastgroup in ("double", "single"):
            tokens.append((_ESCAPE.sub(_unescaped, found[found.lastgroup]), False))
        elif found.lastgroup != "blank":
            tokens.append((found[0], found.lastgroup == "sign"))
    return tokens


def _unescaped(found: re.Match[str]) -> str:
    what = found[1]
    return chr(int(what, 8)) if what.isdigit() and what[0] in "01234567" else _LETTERS.get(what, what)
