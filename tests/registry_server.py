"""A schema registry for tests: the part of Confluent's API that clients use, over HTTP on loopback."""

from __future__ import annotations

import base64
import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import unquote, urlsplit

Answer = tuple[int, Any]


class RegistryServer:
    """`with RegistryServer() as registry`: `registry.url`. `asked` is every request; `failures` answers come first."""

    def __init__(self, credentials: str | None = None) -> None:
        self.asked: list[str] = []
        self.failures: list[int] = []
        self.refused_subjects: set[str] = set()
        self._credentials = credentials
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def _serve(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                with server._lock:
                    status, answer = server._answer(method, self.path, body, self.headers.get("Authorization"))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None: ...

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def _answer(self, method: str, path: str, body: bytes, authorization: str | None) -> Answer:
        self.asked.append(f"{method} {path}")
        if self.failures:
            return self.failures.pop(0), {"error_code": 50001, "message": "the store has failed"}
        if self._credentials is not None:
            expected = f"Basic {base64.b64encode(self._credentials.encode()).decode()}"
            if authorization != expected:
                return 401, {"error_code": 40101, "message": "who are you?"}
        place = urlsplit(path).path
        if found := re.fullmatch(r"/schemas/ids/(\d+)", place):
            number = int(found[1])
            if not 0 < number <= len(self._schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            return 200, self._schemas[number - 1]
        if found := re.fullmatch(r"/subjects/([^/]+)(/versions)?", place):
            return self._post(unquote(found[1]), json.loads(body), registers=found[2] is not None)
        if found := re.fullmatch(r"/subjects/([^/]+)/versions/(\w+)", place):
            return self._version(unquote(found[1]), found[2])
        return 404, {"error_code": 404, "message": f"no {method} {path}"}

    def _post(self, subject: str, schema: dict[str, Any], *, registers: bool) -> Answer:
        known = self._subjects.get(subject, [])
        if schema in self._schemas and (number := self._schemas.index(schema) + 1) in known:
            return 200, {"id": number, "subject": subject, "version": known.index(number) + 1}
        if not registers:
            return 404, {"error_code": 40403, "message": "Schema not found"}
        if subject in self.refused_subjects:
            return 409, {"error_code": 409, "message": "Schema being registered is incompatible"}
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        self._subjects.setdefault(subject, []).append(number)
        return 200, {"id": number}

    def _version(self, subject: str, which: str) -> Answer:
        known = self._subjects.get(subject)
        if not known:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        version = len(known) if which == "latest" else int(which)
        if version > len(known):
            return 404, {"error_code": 40402, "message": "Version not found."}
        number = known[version - 1]
        return 200, {"subject": subject, "version": version, "id": number, **self._schemas[number - 1]}
