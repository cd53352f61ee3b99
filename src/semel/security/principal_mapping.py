"""Who a client certificate makes its owner: `ssl.principal.mapping.rules`, as Kafka reads them.

A subject is written as RFC 2253 says, the most specific part first: `CN=alice,OU=Sales,O=Company,C=DE`. The first rule
that matches the whole of it gives the name; DEFAULT matches everything and changes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

_KEYWORDS = {
    "commonName": "CN",
    "countryName": "C",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
# Java writes what has no keyword of RFC 2253 by its number, with the value as it is encoded.
_EMAIL, _EMAIL_NUMBER, _IA5_STRING = "emailAddress", "1.2.840.113549.1.9.1", 0x16
_SPECIAL = re.compile(r'([,+"\\<>;])')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\$(\d)")


class Rule(NamedTuple):
    """Without a pattern: DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: str
    case: str

    def name_of(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None
        try:
            name = _GROUP.sub(lambda group: found[int(group[1])] or "", self.replacement.replace("\\/", "/"))
        except IndexError:
            return None
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


def parse_rules(text: str) -> list[Rule]:
    """Raises ValueError."""
    rules: list[Rule] = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None or found.end() == position:
            raise ValueError(
                f"there is no rule of the form RULE:pattern/replacement/ or DEFAULT at {text[position:]!r}"
            )
        if found[1]:
            rules.append(Rule(None, "", ""))
        else:
            try:
                pattern = re.compile(found[2].replace("\\/", "/"))
            except re.error as error:
                raise ValueError(f"{found[2]!r} is not a pattern: {error}") from error
            rules.append(Rule(pattern, found[3], found[4]))
        position = found.end()
    return rules or [Rule(None, "", "")]


def mapped(rules: Iterable[Rule], subject: str) -> str | None:
    """The name of the principal; None if no rule matches."""
    for rule in rules:
        name = rule.name_of(subject)
        if name is not None:
            return name
    return None


def subject_of(certificate: Mapping[str, Any]) -> str:
    """The subject of a certificate, as `ssl.SSLSocket.getpeercert` gives it."""
    names = ["+".join(_written(*attribute) for attribute in part) for part in certificate.get("subject", ())]
    return ",".join(reversed(names))


def _written(attribute: str, value: str) -> str:
    if attribute == _EMAIL and len(value) < 128:
        return f"{_EMAIL_NUMBER}=#{bytes((_IA5_STRING, len(value))).hex()}{value.encode('ascii', 'replace').hex()}"
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped.startswith(("#", " ")):
        escaped = "\\" + escaped
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_KEYWORDS.get(attribute, attribute)}={escaped}"
