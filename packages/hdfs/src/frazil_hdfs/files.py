"""Files of HDFS, by a client that needs neither Java nor Hadoop's libraries, with the settings that the driver's Hadoop has.

The client reads files of settings and the user's name from its own environment where it gets none: executors may have
others than the driver, so it gets the driver's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from hdfs_native import Client, FileStatus, WriteOptions
from pyiceberg.io import InputFile

from frazil.store.file_io import RangeReader, StoreFile, StoreWriter
from frazil.store.properties import DRIVERS_HADOOP, HADOOP_USER

_USER_VARIABLE = "HADOOP_USER_NAME"
# The client repeats the calls of a name node that cannot be reached, with pauses up to 15 s: by default
# for three minutes, in which the batch could be planned again. The driver's settings win.
_DEFAULTS = {"dfs.client.failover.max.attempts": "4"}
# An answer of a name node is the name of a Java class, a message, and a stack trace.
_ANSWER = re.compile(r'RPCError\("(?:[\w$]+\.)*([\w$]+)", "(.*?)(?:\\n|"\)?$)', re.DOTALL)


class HdfsCluster:
    """A cluster, or one of its name nodes."""

    def __init__(self, properties: Mapping[str, str], host: str) -> None:
        """properties: of tasks, with the driver's settings. host: with the port, or the name of a name service."""
        self._settings = {
            name.removeprefix(DRIVERS_HADOOP): value
            for name, value in properties.items()
            if name.startswith(DRIVERS_HADOOP)
        }
        self._host = host

    @cached_property
    def client(self) -> Client:
        """The client, which connects at its first request. Raises: OSError for a name service without settings."""
        if user := self._settings.get(HADOOP_USER):
            os.environ[_USER_VARIABLE] = user
        address = f"hdfs://{self._host}"
        with _as_os_errors(address):
            return Client(address, {**_DEFAULTS, **self._settings}, os.devnull)

    def file(self, location: str, key: str) -> HdfsFile:
        """Returns the file at the path `key`, which has no `/` in front."""
        return HdfsFile(location, f"/{key}", self)

    def probe(self, location: str, key: str) -> None:
        """Lists the folder, which need not exist. Raises: OSError when that fails."""
        with _as_os_errors(location):
            try:
                next(iter(self.client.list_status(f"/{key}".rstrip("/") or "/")), None)
            except FileNotFoundError:
                return

    def files(self, location: str, key: str) -> Iterator[tuple[str, int, int]]:
        """Yields the files in a folder and in those inside it: path in the folder, size in bytes, and when it was last
        written, in milliseconds. Raises: OSError.
        """
        folder = f"/{key}".rstrip("/")
        with _as_os_errors(location):
            try:
                for status in self.client.list_status(folder or "/", recursive=True):
                    if not status.isdir:
                        yield status.path[len(folder) :].lstrip("/"), status.length, status.modification_time
            except FileNotFoundError:
                return

    def options(self, overwrite: bool) -> WriteOptions:
        """Returns what a new file has: what one of Java's would have."""
        settings = self._settings
        options: WriteOptions = WriteOptions(
            block_size=_number(settings.get("dfs.blocksize")),
            replication=_number(settings.get("dfs.replication")),
            permission=0o666 & ~int(settings.get("fs.permissions.umask-mode", "022"), 8),
            overwrite=overwrite,
        )
        return options


class HdfsFile(StoreFile):
    """A file of a cluster. One that was begun and not closed has no rows for readers."""

    def __init__(self, location: str, path: str, cluster: HdfsCluster) -> None:
        super().__init__(location)
        self._path = path
        self._cluster = cluster

    def __len__(self) -> int:
        return self._status().length

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> Any:  # noqa: ARG002
        with _as_os_errors(self.location):
            content = self._cluster.client.read(self._path)

        def read_range(start: int, end: int) -> bytes:
            with _as_os_errors(self.location):
                return content.read_range(start, end - start)

        return RangeReader(len(content), read_range)

    def create(self, overwrite: bool = False) -> Any:
        def begin() -> Any:
            return self._cluster.client.create(self._path, self._cluster.options(overwrite))

        return StoreWriter(self.location, _as_os_errors, begin)

    def to_input_file(self) -> InputFile:
        return self

    def version(self) -> str:
        """Returns what changes when the file is replaced. Raises: OSError."""
        status = self._status()
        return f"{status.length} bytes, {status.modification_time}"

    def delete(self) -> None:
        """Deletes the file, for good. Raises: OSError, also where it does not exist."""
        with _as_os_errors(self.location):
            if not self._cluster.client.delete(self._path):
                raise FileNotFoundError(self.location)

    def _status(self) -> FileStatus:
        with _as_os_errors(self.location):
            return self._cluster.client.get_file_info(self._path)


@contextmanager
def _as_os_errors(location: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, FileExistsError) as error:
        raise type(error)(_text(location, error)) from None
    except (OSError, RuntimeError, NotImplementedError) as error:
        raise OSError(_text(location, error)) from None


def _text(location: str, error: Exception) -> str:
    """Returns the first line of the error, without the trace of the name node."""
    words = str(error)
    answer = _ANSWER.search(words)
    line = f"{answer[1]}: {answer[2]}" if answer else words.partition("\n")[0]
    return line if line.startswith(location) else f"{location}: {line}"


def _number(text: str | None) -> int | None:
    return None if text is None else int(text)
