"""PyIceberg's interface of file access, FileIO, over the clients of object stores, over HDFS, and over local files.

Errors of a store are OSErrors, without the query of a URL, which may hold a signature. Files are read by ranges: Arrow joins
what it needs to larger ranges itself.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from pyiceberg.io import FileIO, InputFile, OutputFile

from frazil.plugins.catalogs import STORES
from frazil.store.addresses import Address, address_of
from frazil.store.clients import Client, client_of

Errors = Callable[[str], AbstractContextManager[None]]
"""Turns the errors of a store's client, while a block works on a location, into OSErrors."""


class RangeReader(io.RawIOBase):
    """Reads ranges of a file, a request each."""

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]) -> None:
        """size: of the file, in bytes. read_range: returns the bytes from a start to an end."""
        self._size = size
        self._read_range = read_range
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._position + size)
        if end <= self._position:
            return b""
        content = self._read_range(self._position, end)
        self._position = end
        return content


class StoreWriter(io.RawIOBase):
    """Writes a file, which is complete once it is closed; after an error it never is."""

    def __init__(self, location: str, errors: Errors, begin: Callable[[], Any]) -> None:
        """begin: returns the writer of the store's client."""
        self._location = location
        self._errors = errors
        self._size = 0
        self._has_failed = False
        with errors(location):
            self._writer = begin()

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, content: Any) -> int:
        try:
            with self._errors(self._location):
                written: int = self._writer.write(content)
        except OSError:
            self._has_failed = True
            raise
        self._size += written
        return written

    def close(self) -> None:
        if self.closed:
            return
        super().close()
        # After an error obstore's writer has forgotten the object's name, and would write to the bucket itself.
        if not self._has_failed:
            with self._errors(self._location):
                self._writer.close()


_PART_BYTES = 5 * 1024 * 1024
# A part must be uploaded within the store's time-out, so few share the way to it.
_PARTS_AT_A_TIME = 4
_CODE, _MESSAGE = re.compile("<Code>([^<]*)"), re.compile("<Message>([^<]*)")
_CERTIFICATE = re.compile(r"InvalidCertificate\(\s*(\w+)")
_REFUSED = re.compile(r"AccessDenied|403 Forbidden|PermissionDenied|lacked the necessary privileges")
_QUERY = re.compile(r"\?[^\s\"'<>)]*")


class StoredFile(NamedTuple):
    """A file of a store."""

    location: str
    size_bytes: int
    #: When it was last written, in milliseconds by the store's clock.
    written_ms: int


class StoreFile(InputFile, OutputFile):
    """A file of a cluster."""

    def version(self) -> str:
        """Returns what changes when the file is replaced. Raises: OSError."""
        raise NotImplementedError

    def delete(self) -> None:
        """Deletes the file, for good. Raises: OSError, also where it does not exist."""
        raise NotImplementedError


class StoreCluster(Protocol):
    """The port of a file system that is not an object store: HDFS, of a package. key: a path without a `/` in front."""

    def file(self, location: str, key: str) -> StoreFile:
        """Returns the file of a path."""

    def probe(self, location: str, key: str) -> None:
        """Lists the folder, which need not exist. Raises: OSError when that fails."""

    def files(self, location: str, key: str) -> Iterator[tuple[str, int, int]]:
        """Yields the files in a folder and in those inside it: path in the folder, size in bytes, and when it was last
        written, in milliseconds. Raises: OSError.
        """


@lru_cache(maxsize=64)
def store_of(properties: tuple[tuple[str, str], ...]) -> StoreIO:
    """Returns the file access with these properties, for all locations that they give access to: one for all tables with
    the same properties, as each has connections and threads of its own.
    """
    return StoreIO(dict(properties))


class StoreIO(FileIO):
    """File access by a table's store properties. Each bucket has a client of its own."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(dict(properties))
        self._clients: dict[tuple[str, str, str], Client] = {}
        self._clusters: dict[str, StoreCluster] = {}

    def check(self, location: str) -> None:
        """Makes the client for `location`. Raises: SpecError for a location or a property that it cannot obey."""
        address = address_of(location)
        if address.kind not in ("local", "hdfs"):
            self._client(address)

    def probe(self, location: str) -> None:
        """Lists the first objects under `location` of a store, with the client that tasks have.

        Raises: OSError when that fails.
        """
        address = address_of(location)
        if address.kind == "hdfs":
            self._cluster(address).probe(location, address.key)
            return
        with _as_os_errors(location):
            next(iter(obstore.list(self._client(address).store, prefix=address.key.rstrip("/") or None)), None)

    def new_input(self, location: str) -> InputFile:
        """See FileIO. Raises: SpecError for a location that no client can reach."""
        return self._file(location)

    def new_output(self, location: str) -> OutputFile:
        """See FileIO. Raises: SpecError for a location that no client can reach."""
        return self._file(location)

    def read_range(self, location: str, start: int, end: int) -> pa.Buffer:
        """Returns the bytes of a file from `start` to `end`, by one request of an object store. Raises: OSError."""
        address = address_of(location)
        if end <= start:  # Not a range to object stores.
            return pa.py_buffer(b"")
        if address.kind in ("local", "hdfs"):
            with self._file(location).open() as stream:
                stream.seek(start)
                return pa.py_buffer(stream.read(end - start))
        with _as_os_errors(location):  # Without a copy.
            return pa.py_buffer(obstore.get_range(self._client(address).store, address.key, start=start, end=end))

    def look(self, location: str, count: int) -> tuple[bytes, int, str]:
        """Returns the first bytes of a file, `count` at most, its size, and what changes when it is replaced, by one request
        of an object store.

        Raises: FileNotFoundError; PermissionError where this client may not read it; OSError when the store fails.
        """
        address = address_of(location)
        if address.kind in ("local", "hdfs"):
            file = self._file(location)
            with file.open() as stream:
                return bytes(stream.read(count)), len(file), self.version_of(location)
        try:
            with _as_os_errors(location):
                answer = obstore.get(self._client(address).store, address.key, options={"range": (0, count)})
                return bytes(answer.bytes()), answer.meta["size"], answer.meta["e_tag"] or ""
        except OSError as error:
            if _REFUSED.search(str(error)):
                raise PermissionError(str(error)) from None
            if isinstance(error, FileNotFoundError) or len(self._file(location)):
                raise
            return b"", 0, self.version_of(location)  # A store has no range of an empty object.

    def files(self, location: str) -> Iterator[StoredFile]:
        """Yields the files in a folder and in the folders inside it; none where there is no such folder.

        Raises: OSError when the store fails.
        """
        address, root = address_of(location), location.rstrip("/")
        if address.kind == "local":
            folder = Path(address.key)
            for path in folder.rglob("*"):
                if path.is_file():
                    status, name = path.stat(), path.relative_to(folder).as_posix()
                    yield StoredFile(f"{root}/{name}", status.st_size, status.st_mtime_ns // 1_000_000)
            return
        if address.kind == "hdfs":
            for name, size, written_ms in self._cluster(address).files(location, address.key):
                yield StoredFile(f"{root}/{name}", size, written_ms)
            return
        prefix = address.key.rstrip("/")
        with _as_os_errors(location):
            for objects in obstore.list(self._client(address).store, prefix=prefix or None, chunk_size=1000):
                for entry in objects:
                    written_ms = int(entry["last_modified"].timestamp() * 1000)
                    place = f"{root}/{entry['path'][len(prefix) :].lstrip('/')}"
                    yield StoredFile(place, entry["size"], written_ms)

    def version_of(self, location: str) -> str:
        """Returns what changes when a file is replaced: the ETag of an object, or size and modification time.

        Raises: OSError when the store fails, or has no such file.
        """
        address = address_of(location)
        if address.kind == "local":
            status = Path(address.key).stat()
            return f"{status.st_size} bytes, {status.st_mtime_ns}"
        if address.kind == "hdfs":
            return self._hdfs(location, address).version()
        with _as_os_errors(location):
            head = obstore.head(self._client(address).store, address.key)
        return head["e_tag"] or f"{head['size']} bytes, {head['last_modified'].isoformat()}"

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Deletes a file, unless the store's properties forbid to delete objects.

        Raises: OSError when the store refuses it.
        """
        name = location if isinstance(location, str) else location.location
        address = address_of(name)
        if address.kind == "local":
            Path(address.key).unlink()
            return
        if address.kind == "hdfs":
            self._hdfs(name, address).delete()
            return
        client = self._client(address)
        if client.may_delete:
            with _as_os_errors(name):
                obstore.delete(client.store, address.key)

    def _file(self, location: str) -> _LocalFile | _Object | StoreFile:
        address = address_of(location)
        if address.kind == "local":
            return _LocalFile(location, address)
        if address.kind == "hdfs":
            return self._hdfs(location, address)
        return _Object(location, address.key, self._client(address))

    def _hdfs(self, location: str, address: Address) -> StoreFile:
        return self._cluster(address).file(location, address.key)

    def _cluster(self, address: Address) -> StoreCluster:
        if address.bucket not in self._clusters:
            self._clusters[address.bucket] = STORES.get(address.kind).opener(self.properties, address.bucket)
        return self._clusters[address.bucket]

    def _client(self, address: Address) -> Client:
        name = (address.kind, address.bucket, address.host)
        if name not in self._clients:
            self._clients[name] = client_of(self.properties, address)
        return self._clients[name]


class _LocalFile(InputFile, OutputFile):
    """A local file, whatever characters are in its name."""

    def __init__(self, location: str, address: Address) -> None:
        super().__init__(location)
        self._path = Path(address.key)

    def __len__(self) -> int:
        return self._path.stat().st_size

    def exists(self) -> bool:
        return self._path.exists()

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
        return pa.OSFile(str(self._path), "rb")

    def create(self, overwrite: bool = False) -> Any:
        if not overwrite and self._path.exists():
            raise FileExistsError(self.location)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        return pa.OSFile(str(self._path), "wb")

    def to_input_file(self) -> InputFile:
        return self


class _Object(InputFile, OutputFile):
    """An object of a store."""

    def __init__(self, location: str, key: str, client: Client) -> None:
        super().__init__(location)
        self._key = key
        self._client = client

    def __len__(self) -> int:
        with _as_os_errors(self.location):
            return obstore.head(self._client.store, self._key)["size"]

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
        def read_range(start: int, end: int) -> bytes:
            with _as_os_errors(self.location):
                return bytes(obstore.get_range(self._client.store, self._key, start=start, end=end))

        return RangeReader(len(self), read_range)

    def create(self, overwrite: bool = False) -> Any:
        if not overwrite and self.exists():
            raise FileExistsError(self.location)
        return StoreWriter(self.location, _as_os_errors, self._begin)

    def _begin(self) -> Any:
        """Begins an object: it is written in one request up to the size of a part, else in parts."""
        return obstore.open_writer(
            self._client.store,
            self._key,
            attributes=self._client.attributes or None,
            tags=self._client.tags or None,
            buffer_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_A_TIME,
        )

    def to_input_file(self) -> InputFile:
        return self


@contextmanager
def _as_os_errors(location: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise FileNotFoundError(_text(location, error)) from None
    except (BaseError, OSError) as error:
        raise OSError(_text(location, error)) from None


def _text(location: str, error: Exception) -> str:
    """Returns the error with the code and message of a store's answer, whose other parts repeat the signed request, and
    with what is wrong with its certificate.
    """
    text, _, answer = str(error).partition("\n\nDebug source")[0].partition("<")
    parts = [match[1] for match in (_CODE.search(answer), _MESSAGE.search(answer)) if match]
    if refused := _CERTIFICATE.search(str(error)):
        parts.append(f"the store's certificate is not accepted: {refused[1]}")
    return f"{location}: {_QUERY.sub('', text).rstrip(': ')}{''.join(f': {part}' for part in parts)}"
