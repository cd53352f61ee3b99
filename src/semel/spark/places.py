"""Where checkpoints and staged files are: a place as an absolute URI, and how it is opened.

Spark hands a place over as it was written: relative, without a scheme, or with one of Hadoop's. It is made absolute on
the driver, once. What is staged goes through pyarrow.fs; the small files of a checkpoint are read without it where they
are local, since it takes longer to load than all the rest of a command.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol
from urllib.parse import quote, unquote

from semel.client.errors import BadSetting

if TYPE_CHECKING:
    from pyarrow import fs

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):(.*)", re.DOTALL)
_AS_ARROW_CALLS_IT = {"s3a": "s3", "s3n": "s3", "wasb": "abfs", "wasbs": "abfss"}
_LOCAL = "file://"


def absolute_uri(location: str) -> str:
    """A location as Spark takes it, as a URI that means the same in every process. Hadoop decodes no percent signs."""
    found = _SCHEME.fullmatch(location)
    scheme, rest = (found[1].lower(), found[2]) if found is not None else ("file", location)
    if scheme == "file":
        path = os.path.abspath(re.sub(r"^//(?=/)", "", rest))
        return f"{_LOCAL}{quote(path)}"
    scheme = _AS_ARROW_CALLS_IT.get(scheme, scheme)
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


@lru_cache(maxsize=64)
def open_place(uri: str) -> Place:
    """Opening may ask the network; so what was opened is kept."""
    from pyarrow import fs

    try:
        return Place(*fs.FileSystem.from_uri(uri))
    except (OSError, ValueError, NotImplementedError) as error:
        raise BadSetting(f"{uri} is on no file system that pyarrow.fs can open here: {error}") from error


class Folder(Protocol):
    """A directory of small files. What is not there is FileNotFoundError, but for `file_names`, which has none then."""

    def read(self, name: str) -> bytes: ...

    def write(self, name: str, content: bytes) -> None: ...

    def file_names(self, folder: str) -> list[str]: ...


def open_folder(uri: str) -> Folder:
    return _LocalFolder(Path(unquote(uri[len(_LOCAL) :]))) if uri.startswith(_LOCAL) else _ArrowFolder(open_place(uri))


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


class _ArrowFolder:
    def __init__(self, place: Place) -> None:
        self._place = place

    def read(self, name: str) -> bytes:
        with self._place.system.open_input_stream(self._place.child(name)) as stream:
            content: bytes = stream.read()
        return content

    def write(self, name: str, content: bytes) -> None:
        with self._place.system.open_output_stream(self._place.child(name)) as stream:
            stream.write(content)

    def file_names(self, folder: str) -> list[str]:
        from pyarrow import fs

        found = self._place.system.get_file_info(fs.FileSelector(self._place.child(folder), allow_not_found=True))
        return [entry.base_name for entry in found if entry.type == fs.FileType.File]
