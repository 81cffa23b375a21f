"""What an address such as `s3://bucket/key` names, read as Iceberg's Java FileIO classes read it: nothing is decoded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from frazil.errors import SpecError

Kind = Literal["s3", "gcs", "adls", "oss", "hdfs", "local"]
_KINDS: dict[str, Kind] = {
    "": "local", "file": "local", "s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gcs", "oss": "oss",
    "abfs": "adls", "abfss": "adls", "wasb": "adls", "wasbs": "adls", "hdfs": "hdfs",
}  # fmt: skip


@dataclass(frozen=True)
class Address:
    """Where a file or a folder is."""

    kind: Kind
    #: The bucket, the container, or the name node with its port or the name service; empty for a local path.
    bucket: str
    #: The key of the object, or the local path.
    key: str
    #: The host of an Azure account; empty elsewhere.
    host: str = ""


def address_of(location: str) -> Address:
    """Returns what `location` names.

    Raises: SpecError for a scheme that tasks have no client for, and for a key that stores' clients read differently.
    """
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return Address("local", "", location)
    kind = _KINDS.get(scheme.lower())
    if kind is None:
        remedy = f"use one of {', '.join(sorted(filter(None, _KINDS)))}, or a local path"
        raise SpecError(f"tasks cannot write to `{scheme}:`", remedy=remedy, where=location)
    if kind == "local":
        return Address("local", "", "/" + rest.lstrip("/") if rest.startswith("/") else rest)
    bucket, _, key = rest.removeprefix("//").partition("/")
    if not bucket or "?" in key or "#" in key or "//" in f"/{key}":
        raise SpecError(
            "the address has no bucket or host, or `?`, `#` or `//` in its path, which clients of stores read differently",
            remedy="choose another location for the table",
            where=location,
        )
    container, at_sign, host = bucket.partition("@")
    return Address(kind, container, key, host) if at_sign else Address(kind, bucket, key)
