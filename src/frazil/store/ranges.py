"""Reading a file of a store by ranges: Arrow joins what it needs to larger ranges itself."""

from __future__ import annotations

import io
from collections.abc import Callable


class RangeReader(io.RawIOBase):
    """Reads ranges of a file, a request each."""

    def __init__(self, size: int, read_range: Callable[[int, int], bytes]) -> None:
        """size: of the file, in bytes. read_range: returns the bytes from a start to an end."""
        self._size = size
        self._read_range = read_range
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._size if size < 0 else min(self._size, self._at + size)
        if end <= self._at:
            return b""
        found = self._read_range(self._at, end)
        self._at = end
        return found
