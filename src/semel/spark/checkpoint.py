"""A query's checkpoint as the sink uses it: its place as an absolute URI, its query id, its batches and their digests.

Spark hands the place over as it was written: relative, without a scheme, or with one of Hadoop's. It is made absolute
on the driver, once, and opened with pyarrow.fs wherever it is needed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from pyarrow import fs

from semel.client.errors import BadSetting

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_AS_ARROW_CALLS_IT = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_LINES_BEFORE_SOURCES = 2  # of a file in `offsets`: the format's version, and the batch's own data


class Place(NamedTuple):
    """A directory, opened."""

    system: fs.FileSystem
    path: str

    def child(self, name: str) -> str:
        return f"{self.path}/{name}"


def absolute_uri(location: str) -> str:
    """A location as Spark takes it, as a URI that means the same in every process. Hadoop decodes no percent signs."""
    found = _SCHEME.fullmatch(location)
    scheme, rest = (found[1].lower(), found[2]) if found is not None else ("file", location)
    if scheme == "file":
        path = os.path.abspath(re.sub(r"^//(?=/)", "", rest))
        return f"file://{quote(path)}"
    scheme = _AS_ARROW_CALLS_IT.get(scheme, scheme)
    authority, slash, path = rest.removeprefix("//").partition("/")
    path, mark, parameters = path.partition("?")  # of pyarrow's own: an endpoint, say
    return f"{scheme}://{authority}{slash}{quote(path.rstrip('/'))}{mark}{parameters}"


@lru_cache(maxsize=64)
def open_place(uri: str) -> Place:
    """Opening may ask the network; so what was opened is kept."""
    try:
        return Place(*fs.FileSystem.from_uri(uri))
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadSetting(f"{uri} is on no file system that pyarrow.fs can open here: {error}") from error


def child_uri(uri: str, name: str) -> str:
    path, mark, parameters = uri.partition("?")
    return f"{path.rstrip('/')}/{quote(name)}{mark}{parameters}"


class Checkpoint:
    def __init__(self, uri: str) -> None:
        self.uri = uri
        self._place = open_place(uri)

    def query_id(self) -> str:
        """The id that a query keeps for as long as it keeps its checkpoint."""
        try:
            return str(json.loads(self._read("metadata"))["id"])
        except FileNotFoundError:
            raise BadSetting(
                f"checkpointLocation: {self.uri} holds no checkpoint of a query (there is no file 'metadata'); if it "
                "lies on another file system than that, give its full URI, such as s3://bucket/path"
            ) from None
        except (ValueError, KeyError, TypeError) as error:
            raise BadSetting(f"checkpointLocation: {self.uri}/metadata does not name a query: {error}") from None

    def digest(self, batch_id: int) -> str | None:
        """A digest of where the batch begins and ends in each source; None if the checkpoint does not hold it (yet, or
        any more). What else the file holds is left out: it says nothing about which records the batch has."""
        try:
            lines = self._read(f"offsets/{batch_id}").splitlines()
        except FileNotFoundError:
            return None
        return hashlib.sha256(b"\n".join(lines[_LINES_BEFORE_SOURCES:])).hexdigest()

    def last_planned(self) -> int | None:
        """The newest batch that was begun."""
        return self._newest("offsets")

    def last_completed(self) -> int | None:
        """The newest batch that Spark knows to be done."""
        return self._newest("commits")

    def _newest(self, folder: str) -> int | None:
        selector = fs.FileSelector(self._place.child(folder), allow_not_found=True)
        numbers = [int(entry.base_name) for entry in self._place.system.get_file_info(selector) if _is_batch(entry)]
        return max(numbers, default=None)

    def _read(self, name: str) -> bytes:
        with self._place.system.open_input_stream(self._place.child(name)) as stream:
            content: bytes = stream.read()
        return content


def _is_batch(entry: fs.FileInfo) -> bool:
    name: str = entry.base_name
    return entry.type == fs.FileType.File and name.isascii() and name.isdecimal()
