"""A query's checkpoint as the sink uses it: its query id, its batches and their digests."""

from __future__ import annotations

import hashlib
import json
from functools import lru_cache

from semel.client.errors import BadSetting
from semel.spark.object_stores import Hadoop
from semel.spark.places import absolute_uri, child_uri, open_folder

_LINES_BEFORE_SOURCES = 2  # of a file in `offsets`: the format's version, and the batch's own data


class Checkpoint:
    def __init__(self, uri: str, hadoop: Hadoop = ()) -> None:
        self.uri = uri
        self._folder = open_folder(uri, hadoop)

    def query_id(self) -> str:
        """The id that a query keeps for as long as it keeps its checkpoint."""
        try:
            return str(json.loads(self._folder.read("metadata"))["id"])
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
            lines = self._folder.read(f"offsets/{batch_id}").splitlines()
        except FileNotFoundError:
            return None
        return hashlib.sha256(b"\n".join(lines[_LINES_BEFORE_SOURCES:])).hexdigest()

    def last_planned(self) -> int | None:
        """The newest batch that was begun."""
        return self._newest("offsets")

    def last_completed(self) -> int | None:
        """The newest batch that Spark knows to be done."""
        return self._newest("commits")

    def source_lines(self, batch_id: int) -> list[bytes]:
        """Where each source has come to at the end of a batch, as Spark writes it; none if the batch is not there."""
        try:
            return self._folder.read(f"offsets/{batch_id}").splitlines()[_LINES_BEFORE_SOURCES:]
        except FileNotFoundError:
            return []

    def _newest(self, folder: str) -> int | None:
        names = self._folder.file_names(folder)
        return max((int(name) for name in names if name.isascii() and name.isdecimal()), default=None)


@lru_cache(maxsize=64)
def checkpoint_below(root: str, query_id: str, query_name: str | None, hadoop: Hadoop = ()) -> str:
    """Where a query keeps its checkpoint that was given none, in a session that has a directory for all of them: Spark
    calls it as the query is called, or by chance."""
    uri = absolute_uri(root)
    names = [query_name] if query_name else open_folder(uri, hadoop).folder_names()
    for name in names:
        try:
            if Checkpoint(child_uri(uri, name), hadoop).query_id() == query_id:
                return child_uri(uri, name)
        except BadSetting:
            continue
    raise BadSetting(
        f"checkpointLocation is missing: {uri}, where the session keeps checkpoints, has none of the query {query_id}; "
        "give it as an option of this write"
    )
