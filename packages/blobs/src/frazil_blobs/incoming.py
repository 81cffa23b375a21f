"""References that come in: addresses in records, of objects that somebody else has stored.

A record can name anything, so only addresses below allowed folders are asked for, by the table's own clients of stores,
which ask no other server. What an address leads to is looked at once: size, first bytes, and what changes when it
is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from errno import ELOOP, ENAMETOOLONG
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from frazil.clock import SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil.plugins.stages import Refusal
from frazil.store.addresses import address_of
from frazil.store.file_io import StoreIO, store_of
from frazil.write.target import TableTarget
from frazil_blobs.settings import BlobSettings, ReferenceSettings
from frazil_blobs.signatures import LONGEST, content_type_of, is_allowed
from frazil_blobs.stage import blobs_at

_PARALLEL = 16
_KNOWN_S = 60.0
"""So long an answer is known: a batch asks for each object when it is judged, and when its row is written."""
_MOST_KNOWN = 100_000
_LONGEST_KEY = 1024
"""Object stores have no longer keys, in bytes: they answer a request for one with an error, at every try."""
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\\\?#]|(^|/)\.\.?(/|$)")


@dataclass(frozen=True)
class Looked:
    """What an address leads to."""

    #: Why its record cannot have a row; empty where it can.
    reason: str
    is_missing: bool = False
    size: int = 0
    content_type: str = ""
    #: What changes when the object is replaced.
    version: str = ""


_known: dict[tuple[int, str], tuple[float, Looked]] = {}


def refuse(settings: BlobSettings, target: TableTarget, columns: Mapping[str, pa.Array]) -> Sequence[Refusal]:
    """Refuses rows whose address is not allowed, or leads to no object, or to one that the settings do not allow.

    Raises: UnavailableError where the table waits for an object; OSError where a store fails.
    """
    references = settings.references
    if references is None:
        return ()
    refused: list[Refusal] = []
    io = store_of(target.files.io_properties)
    for text in references.columns:
        name, *inner = text.split(".")
        blobs = blobs_at(columns[name], inner) if name in columns else None
        if blobs is not None:
            refused += _refusals(settings, references, io, text, pc.struct_field(blobs, "uri"))
    return refused


def _refusals(
    settings: BlobSettings, references: ReferenceSettings, io: StoreIO, text: str, uris: pa.Array
) -> Iterator[Refusal]:
    addresses = uris.to_pylist()
    wanted = dict.fromkeys(address for address in addresses if address is not None)
    with ThreadPoolExecutor(_PARALLEL, "references") as pool:
        answers = dict(
            zip(wanted, pool.map(lambda uri: look(settings, references, io, text, uri), wanted), strict=True)
        )
    for uri, answer in answers.items():
        if answer.is_missing and references.missing == "wait":
            raise UnavailableError(f"the object of a record does not exist yet, column={text}", where=uri)
    reasons = np.array([answers[uri].reason if uri is not None else "" for uri in addresses], object)
    for reason in dict.fromkeys(reasons.tolist()):
        if reason:
            yield Refusal(reasons == reason, text, reason)


def look(settings: BlobSettings, references: ReferenceSettings, io: StoreIO, text: str, uri: str) -> Looked:
    """Returns what an address of a column leads to. Raises: OSError where the store fails."""
    if not may_ask(uri, references.allow):
        return Looked("the address is not below a folder of `blobs.references.allow`")
    now_s = SystemClock().monotonic_s()
    known = _known.get((id(io), uri))
    if known is None or now_s - known[0] > _KNOWN_S:
        if len(_known) >= _MOST_KNOWN:
            _known.clear()
        known = _known[id(io), uri] = now_s, _ask(io, uri)
    # The settings may not allow the object.
    looked = known[1]
    allowed = settings.types.get(text)
    if not looked.reason and looked.size > settings.limit:
        return Looked(f"the object is larger than `blobs.limit`, {settings.limit:,} bytes")
    if not looked.reason and allowed and not is_allowed(looked.content_type, allowed):
        return Looked(f"the bytes are {looked.content_type}, and `blobs.types` has {', '.join(allowed)}")
    return looked


def refuse_replaced(io: StoreIO, uri: str, looked: Looked) -> None:
    """Asks for an object again, once its bytes are copied. Raises: OSError where it was replaced since it was looked at:
    parts of it may be of one object, and others of the next.
    """
    if _ask(io, uri) != looked:
        _known.pop((id(io), uri), None)
        raise OSError(f"{uri}: the object was replaced while it was copied")


def _ask(io: StoreIO, uri: str) -> Looked:
    try:
        first, size, version = io.look(uri, LONGEST)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        return Looked("no object is at the address", is_missing=True)
    except PermissionError:
        return Looked("Frazil may not read the object at the address")
    except OSError as error:
        if error.errno not in (ENAMETOOLONG, ELOOP):
            raise
        return Looked("no object can be at the address")
    return Looked("", size=size, content_type=content_type_of(first), version=version)


def may_ask(uri: str, allow: Sequence[str]) -> bool:
    """Whether an address is below an allowed folder, whatever tricks it is written with: `..`, escapes, links."""
    prefix = next((folder for folder in allow if uri.startswith(folder)), None)
    if prefix is None or _UNSAFE.search(uri[len(prefix) :]) or not uri[len(prefix) :]:
        return False
    try:
        address, folder = address_of(uri), address_of(prefix)
    except SpecError:  # Stores' clients read its path differently.
        return False
    if len(address.key.encode()) > _LONGEST_KEY:
        return False
    if address.kind != "local":
        return True
    return Path(address.key).resolve().is_relative_to(Path(folder.key).resolve())
