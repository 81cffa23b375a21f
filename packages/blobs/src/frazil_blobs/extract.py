"""What the headers of objects contain: the size of a picture and its EXIF, the number and the bounds of points.

Only headers are read, and no pixel is decoded: an object is hostile until proven otherwise. What has no header that is
known, or a damaged one, has null.
"""

from __future__ import annotations

import json
import struct
import warnings
from importlib.util import find_spec
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa

from frazil.errors import SpecError

INFO = pa.struct(
    [
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("exif", pa.string()),
        ("duration", pa.float64()),
        ("points", pa.int64()),
        ("lower", pa.list_(pa.field("element", pa.float64()))),
        ("upper", pa.list_(pa.field("element", pa.float64()))),
    ]
)
"""The column of what is extracted. `exif` is JSON by the names of the tags; `duration` is in seconds; `lower` and `upper`
are corners: x, y, z.
"""
FORMATS = {f"image/{name}": name.upper() for name in ("jpeg", "png", "gif", "webp", "tiff", "bmp")}
_PLAYED = ("video/mp4", "video/quicktime", "audio/wav", "audio/mpeg", "audio/flac", "application/ogg")
_LONGEST_S = 1e9
_LONGEST_HEADER = 64 * 1024
_MOST_POINTS = 2**63 - 1
_LAS_BEGIN, _LAS_LONG_COUNT = 104, 247
_KINDS = {"F": "f", "I": "i", "U": "u"}
_PLY_TYPES = {
    "float": "f4", "float32": "f4", "double": "f8", "float64": "f8", "char": "i1", "int8": "i1", "uchar": "u1",
    "uint8": "u1",
    "short": "i2", "int16": "i2", "ushort": "u2", "uint16": "u2", "int": "i4", "int32": "i4", "uint": "u4", "uint32": "u4",
}  # fmt: skip
Info = dict[str, Any]


def require_readers() -> None:
    """Raises SpecError where what reads pictures, films and sounds is not installed."""
    for module, name in (("PIL", "Pillow"), ("tinytag", "tinytag")):
        if find_spec(module) is None:
            remedy = (
                "install `frazil-blobs[media]` with pip from where Frazil was installed, or take `extract` and"
                " `thumbnails` out of `blobs`"
            )
            raise SpecError(f"`extract` and `thumbnails` of `blobs` need {name}, which is not installed", remedy=remedy)


def info_of(content: bytes, content_type: str) -> Info | None:
    """Returns what the header of an object contains, by the fields of INFO; None for nothing."""
    readers = {"application/vnd.las": _las, "application/vnd.pcd": _pcd, "application/vnd.ply": _ply}
    try:
        if content_type in FORMATS:
            return _picture(content, FORMATS[content_type])
        if content_type in _PLAYED:
            return _played(content)
        reader = readers.get(content_type)
        info = reader(content) if reader is not None else None
        return info if info is None or 0 <= info["points"] <= _MOST_POINTS else None
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, struct.error):
        return None


def _picture(content: bytes, form: str) -> Info | None:
    from PIL import ExifTags, Image  # noqa: PLC0415  (an extra, which takes a while)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Of large pictures, none of whose pixels is read.
            with Image.open(BytesIO(content), formats=(form,)) as picture:
                width, height = picture.size
                tags = {ExifTags.TAGS.get(tag, str(tag)): value for tag, value in picture.getexif().items()}
    except Exception:  # noqa: BLE001  (whatever a damaged picture makes Pillow raise)
        return None
    exif = json.dumps({name: str(value) for name, value in tags.items()}, ensure_ascii=True) if tags else None
    return {"width": width, "height": height, "exif": exif}


def _played(content: bytes) -> Info | None:
    """Returns how long a film or a sound takes."""
    from tinytag import TinyTag  # noqa: PLC0415  (an extra)

    try:
        duration_s = TinyTag.get(file_obj=BytesIO(content), tags=False).duration
    except Exception:  # noqa: BLE001  (whatever a damaged file makes it raise)
        return None
    return {"duration": float(duration_s)} if duration_s and 0 < duration_s < _LONGEST_S else None


def _las(content: bytes) -> Info:
    """Reads the public header block of LAS 1.0 to 1.4. Source: ASPRS, "LAS Specification 1.4 - R15"."""
    version = (content[24], content[25])
    (count,) = struct.unpack_from("<I", content, _LAS_BEGIN + 3)
    if version >= (1, 4):
        (count,) = struct.unpack_from("<Q", content, _LAS_LONG_COUNT)
    max_x, min_x, max_y, min_y, max_z, min_z = struct.unpack_from("<6d", content, 179)
    return {"points": count, "lower": [min_x, min_y, min_z], "upper": [max_x, max_y, max_z]}


def _pcd(content: bytes) -> Info:
    """Reads a header of the Point Cloud Library, and the bounds of points that are neither text nor compressed."""
    lines: dict[str, list[str]] = {}
    begin = 0
    while "DATA" not in lines:
        end = content.index(b"\n", begin, _LONGEST_HEADER)
        words = content[begin:end].decode("ascii").split()
        if words and words[0] != "#":
            lines[words[0]] = words[1:]
        begin = end + 1
    count = int(lines["POINTS"][0]) if "POINTS" in lines else int(lines["WIDTH"][0]) * int(lines["HEIGHT"][0])
    if lines["DATA"] != ["binary"]:
        return {"points": count}
    counts = [int(word) for word in lines.get("COUNT", ["1"] * len(lines["FIELDS"]))]
    kinds = [f"<{_KINDS[kind]}{int(size)}" for kind, size in zip(lines["TYPE"], lines["SIZE"], strict=True)]
    names = [f"{name}{n}" if name == "_" else name for n, name in enumerate(lines["FIELDS"])]
    parts = zip(names, kinds, counts, strict=True)
    record = np.dtype([(name, kind, (many,) if many > 1 else ()) for name, kind, many in parts])
    return _bounded(np.frombuffer(content, record, count, begin), count)


def _ply(content: bytes) -> Info:
    """Reads a header of the Polygon File Format, and the bounds of vertices that are binary and come first."""
    header, _, body = content[:_LONGEST_HEADER].partition(b"end_header\n")
    if not body and len(content) > _LONGEST_HEADER:
        raise ValueError("the header is too long")
    form, count, fields, element = "", 0, list[tuple[str, str]](), ""
    is_first = True
    for line in header.decode("ascii").splitlines():
        words = line.split()
        if words[:1] == ["format"]:
            form = words[1]
        elif words[:1] == ["element"]:
            is_first = is_first and element in ("", "vertex")
            element = words[1]
            count = int(words[2]) if element == "vertex" else count
        elif words[:1] == ["property"] and element == "vertex":
            fields.append((words[-1], _PLY_TYPES.get(words[1], "")))
    order = {"binary_little_endian": "<", "binary_big_endian": ">"}.get(form)
    if order is None or not is_first or not all(kind for _, kind in fields):
        return {"points": count}
    record = np.dtype([(name, order + kind) for name, kind in fields])
    return _bounded(np.frombuffer(content, record, count, len(header) + len(b"end_header\n")), count)


def _bounded(points: np.ndarray[Any, Any], count: int) -> Info:
    """Returns the number of points and the corners of those that are finite."""
    names = points.dtype.names or ()
    if not {"x", "y", "z"} <= set(names) or not count:
        return {"points": count}
    axes = np.stack([points[axis].astype(np.float64) for axis in ("x", "y", "z")])
    axes = axes[:, np.isfinite(axes).all(axis=0)]
    if not axes.shape[1]:
        return {"points": count}
    return {"points": count, "lower": axes.min(axis=1).tolist(), "upper": axes.max(axis=1).tolist()}
