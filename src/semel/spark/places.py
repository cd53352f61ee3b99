"""Where checkpoints and staged files are: a place as an absolute URI, and how it is opened.

Spark hands a place over as it was written: relative, without a scheme, or with one of Hadoop's. It is made absolute on
the driver, once. What is staged goes through pyarrow.fs; the small files of a checkpoint are read without it where they
are local, since it takes longer to load than all the rest of a command.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote

from semel.client.errors import BadSetting
from semel.spark.object_stores import Hadoop, arrow_scheme, open_store
from semel.spark.sink_errors import PlaceUnreachable

if TYPE_CHECKING:
    from pyarrow import fs

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_LOCAL = "file://"


def absolute_uri(location: str) -> str:
    """A location as Spark takes it, as a URI that means the same in every process. Hadoop decodes no percent signs."""
    found = _SCHEME.fullmatch(location)
    scheme, rest = (found[1].lower(), found[2]) if found is not None else ("file", location)
    if scheme == "file":
        path = os.path.abspath(re.sub(r"^//(?=/)", "", rest))
        return f"{_LOCAL}{quote(path)}"
    scheme = arrow_scheme(scheme)
    authority, slash, path = rest.removeprefix("//").partition("/")
    path, mark, parameters = path.partition("?")  # of pyarrow's own: an endpoint, say
    return f"{scheme}://{authority}{slash}{quote(path.rstrip('/'))}{mark}{parameters}"


def child_uri(uri: str, name: str) -> str:
    path, mark, parameters = uri.partition("?")
    return f"{path.rstrip('/')}/{quote(name)}{mark}{parameters}"


class Place(NamedTuple):
    """A directory, opened."""

    system: fs.FileSystem
    path: str

    def child(self, name: str) -> str:
        return f"{self.path}/{name}"


def is_local(uri: str) -> bool:
    return uri.startswith(_LOCAL)


@lru_cache(maxsize=64)
def open_place(uri: str, hadoop: Hadoop = ()) -> Place:
    """Opening may ask the network; so what was opened is kept."""
    try:
        return Place(*open_store(uri, hadoop))
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadSetting(f"{uri} is on no file system that pyarrow.fs can open here: {error}") from error


def unreachable(uri: str, error: OSError) -> PlaceUnreachable:
    """What pyarrow says of a store that does not answer, or refuses."""
    return PlaceUnreachable(f"{uri} cannot be used: {' '.join(str(error).split())}")


class Folder(Protocol):
    """A directory of small files. What is not there is FileNotFoundError, but for `file_names`, which has none then."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None: ...

    def file_names(self, folder: str) -> list[str]: ...

    def folder_names(self) -> list[str]: ...


def open_folder(uri: str, hadoop: Hadoop = ()) -> Folder:
    if is_local(uri):
        return _LocalFolder(Path(unquote(uri[len(_LOCAL) :])))
    return _ArrowFolder(uri, open_place(uri, hadoop))


class _LocalFolder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self, name: str) -> bytes:
        return (self._path / name).read_bytes()

    def write(self, name: str, content: bytes) -> None:
        (self._path / name).write_bytes(content)

    def file_names(self, folder: str) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._path / folder) if entry.is_file()]
        except FileNotFoundError:
            return []

    def folder_names(self) -> list[str]:
        try:
            return [entry.name for entry in os.scandir(self._path) if entry.is_dir()]
        except FileNotFoundError:
            return []


class _ArrowFolder:
    def __init__(self, uri: str, place: Place) -> None:
        self._uri = uri
        self._place = place

    def read(self, name: str) -> bytes:
        with self._asking(), self._place.system.open_input_stream(self._place.child(name)) as stream:
            content: bytes = stream.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._asking(), self._place.system.open_output_stream(self._place.child(name)) as stream:
            stream.write(content)

    def file_names(self, folder: str) -> list[str]:
        return self._entries(self._place.child(folder), is_file=True)

    def folder_names(self) -> list[str]:
        return self._entries(self._place.path, is_file=False)

    def _entries(self, path: str, *, is_file: bool) -> list[str]:
        from pyarrow import fs

        wanted = fs.FileType.File if is_file else fs.FileType.Directory
        with self._asking():
            found = self._place.system.get_file_info(fs.FileSelector(path, allow_not_found=True))
        return [entry.base_name for entry in found if entry.type == wanted]

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise unreachable(self._uri, error) from error
