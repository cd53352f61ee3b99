"""A client of Confluent's schema registry. Every call waits; answers that cannot change are remembered.

Safe to call from several threads. Serializers ask the caches first, and let the client fetch in a thread what is not
there.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from semel.client.errors import BadSetting, SemelError
from semel.serializers.errors import RegistryRefused, RegistryUnavailable

AVRO = "AVRO"
PROTOBUF = "PROTOBUF"
JSON = "JSON"
_CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses, by the name under which it does."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True)
class Schema:
    text: str
    kind: str = AVRO
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True)
class Registered:
    schema: Schema
    schema_id: int
    subject: str
    version: int


class SchemaRegistry:
    """`urls` are tried in order: one, or several with commas. `basic_auth` is (user, password), `token` a bearer
    token."""

    def __init__(
        self,
        urls: str | Sequence[str] = "http://localhost:8081",
        *,
        basic_auth: tuple[str, str] | None = None,
        token: str | None = None,
        ssl_context: ssl.SSLContext | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        given = urls.split(",") if isinstance(urls, str) else list(urls)
        self._urls = [url.strip().rstrip("/") for url in given if url.strip()]
        for url in self._urls:
            if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
                raise BadSetting(f"{url!r} is no address of a schema registry; allowed: http://... and https://...")
        if not self._urls:
            raise BadSetting("a schema registry needs at least one address")
        if basic_auth is not None and token is not None:
            raise BadSetting("basic_auth contradicts token: leave one of them out")
        self._headers = {"Accept": _CONTENT_TYPE, "Content-Type": _CONTENT_TYPE}
        if basic_auth is not None:
            credentials = base64.b64encode(":".join(basic_auth).encode()).decode()
            self._headers["Authorization"] = f"Basic {credentials}"
        elif token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._ssl_context = ssl_context
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._schemas: dict[tuple[int, str], Schema | SemelError] = {}
        self._ids: dict[tuple[str, Schema], int] = {}
        self._versions: dict[tuple[str, int], Registered] = {}

    # -- what is known

    def known(self, schema_id: int, form: str = "") -> Schema | None:
        """A schema that was fetched before. Raises RegistryRefused if the registry said that there is none."""
        with self._lock:
            found = self._schemas.get((schema_id, form))
        if isinstance(found, SemelError):
            raise found
        return found

    def known_id(self, subject: str, schema: Schema) -> int | None:
        with self._lock:
            return self._ids.get((subject, schema))

    def known_version(self, subject: str, number: int) -> Registered | None:
        with self._lock:
            return self._versions.get((subject, number))

    # -- asking

    def schema(self, schema_id: int, form: str = "") -> Schema:
        """By the id that records carry. `form` is the registry's: "serialized" for Protobuf descriptors."""
        found = self.known(schema_id, form)
        if found is not None:
            return found
        query = f"?format={form}" if form else ""
        try:
            answer = self._call("GET", f"/schemas/ids/{schema_id}{query}")
        except RegistryRefused as error:
            with self._lock:
                self._schemas[schema_id, form] = error
            raise
        found = _read_schema(answer)
        with self._lock:
            self._schemas[schema_id, form] = found
        return found

    def fetch(self, schema_id: int, form: str = "") -> None:
        """As `schema`; a refusal is remembered, and raised to who asks what is known."""
        try:
            self.schema(schema_id, form)
        except RegistryRefused:
            pass

    def register(self, subject: str, schema: Schema) -> int:
        """The schema's id; the same one if it is registered already. Raises RegistryRefused if it is not compatible."""
        return self._id_of(subject, schema, f"/subjects/{_quoted(subject)}/versions")

    def lookup(self, subject: str, schema: Schema) -> int:
        """The id of a schema that must be registered already."""
        return self._id_of(subject, schema, f"/subjects/{_quoted(subject)}")

    def latest(self, subject: str) -> Registered:
        """The newest version of a subject, as it is now."""
        return self._read_version(self._call("GET", f"/subjects/{_quoted(subject)}/versions/latest"))

    def version(self, subject: str, number: int) -> Registered:
        known = self.known_version(subject, number)
        return known or self._read_version(self._call("GET", f"/subjects/{_quoted(subject)}/versions/{number}"))

    def subjects(self) -> list[str]:
        return list(self._call("GET", "/subjects"))

    def _id_of(self, subject: str, schema: Schema, path: str) -> int:
        known = self.known_id(subject, schema)
        if known is not None:
            return known
        body: dict[str, Any] = {"schema": schema.text}
        if schema.kind != AVRO:
            body["schemaType"] = schema.kind
        if schema.references:
            body["references"] = [vars(reference) for reference in schema.references]
        schema_id = int(self._call("POST", path, body)["id"])
        with self._lock:
            self._ids[subject, schema] = schema_id
        return schema_id

    def _read_version(self, answer: Any) -> Registered:
        found = Registered(_read_schema(answer), int(answer["id"]), answer["subject"], int(answer["version"]))
        with self._lock:
            self._versions[found.subject, found.version] = found
        return found

    def _call(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        failures = []
        for url in self._urls:
            request = urllib.request.Request(url + path, data=data, headers=self._headers, method=method)
            try:
                with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._ssl_context) as answer:
                    return json.loads(answer.read())
            except urllib.error.HTTPError as error:
                code, reason = _reason(error)
                if error.code < 500 and error.code != 429:
                    raise RegistryRefused(f"{method} {url}{path}: {reason}", registry_code=code) from None
                failures.append(f"{url}: {reason}")
            except (OSError, ValueError) as error:
                failures.append(f"{url}: {getattr(error, 'reason', None) or error}")
        raise RegistryUnavailable(f"no schema registry has answered {method} {path}: {'; '.join(failures)}")


def _read_schema(answer: Any) -> Schema:
    references = tuple(
        Reference(entry["name"], entry["subject"], int(entry["version"])) for entry in answer.get("references") or ()
    )
    return Schema(answer["schema"], answer.get("schemaType") or AVRO, references)


def _reason(error: urllib.error.HTTPError) -> tuple[int, str]:
    """The registry's own number and text, if it has given some."""
    try:
        answer = json.loads(error.read())
        return int(answer["error_code"]), f"{answer['message']} ({answer['error_code']})"
    except (ValueError, KeyError, TypeError, OSError):
        return error.code, f"HTTP {error.code} {error.reason}"


def _quoted(subject: str) -> str:
    return urllib.parse.quote(subject, safe="")
