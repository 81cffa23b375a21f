"""Files of a store as streams. They are read by ranges: Arrow joins what it needs to larger ranges itself."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

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
