"""The content type of bytes by their first ones, whatever a record claims.

Known are formats of pictures, films, sounds, point clouds, documents and tables.
"""

from __future__ import annotations

UNKNOWN = "application/octet-stream"
"""The type of bytes that begin as none of these formats does."""
LONGEST = 64
"""So many first bytes decide."""

_BEGINNINGS: tuple[tuple[bytes, str], ...] = (
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"II*\x00", "image/tiff"),
    (b"MM\x00*", "image/tiff"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
    (b"\x1f\x8b\x08", "application/gzip"),
    (b"OggS", "application/ogg"),
    (b"fLaC", "audio/flac"),
    (b"ID3", "audio/mpeg"),
    (b"LASF", "application/vnd.las"),
    (b"ASTM-E57", "model/e57"),
    (b"# .PCD", "application/vnd.pcd"),
    (b"VERSION .7\nFIELDS", "application/vnd.pcd"),
    (b"ply\n", "application/vnd.ply"),
    (b"ply\r\n", "application/vnd.ply"),
    (b"PAR1", "application/vnd.apache.parquet"),
    (b"ARROW1\x00\x00", "application/vnd.apache.arrow.file"),
    (b"\x89HDF\r\n\x1a\n", "application/x-hdf5"),
    (b"\x93NUMPY", "application/x-npy"),
)
_RIFF = {b"WEBP": "image/webp", b"WAVE": "audio/wav", b"AVI ": "video/x-msvideo"}
_IMAGE_BRANDS = {
    b"avif": "image/avif",
    b"avis": "image/avif",
    b"heic": "image/heic",
    b"heix": "image/heic",
    b"mif1": "image/heif",
}
_EBML = b"\x1a\x45\xdf\xa3"
_BMP_HEADERS = (12, 40, 52, 56, 64, 108, 124)
"""The sizes of the headers that follow the file header of a bitmap: `BM` alone begins texts too."""


def content_type_of(first: bytes) -> str:
    """Returns the content type of bytes that begin so. first: up to LONGEST bytes."""
    for beginning, content_type in _BEGINNINGS:
        if first.startswith(beginning):
            return content_type
    if first[:4] == b"RIFF":
        return _RIFF.get(first[8:12], UNKNOWN)
    if first[4:8] == b"ftyp":
        brand = first[8:12]
        return _IMAGE_BRANDS.get(brand, "video/quicktime" if brand == b"qt  " else "video/mp4")
    if first[:4] == _EBML:
        return "video/webm" if b"webm" in first else "video/x-matroska"
    if first[:2] == b"BM" and int.from_bytes(first[14:18], "little") in _BMP_HEADERS:
        return "image/bmp"
    if len(first) >= 4 and first[0] == 0xFF and first[1] & 0xE6 == 0xE2 and first[2] & 0xF0 not in (0x00, 0xF0):
        return "audio/mpeg"  # Layer III with a bit rate.
    return UNKNOWN


def is_allowed(content_type: str, allowed: tuple[str, ...]) -> bool:
    """Whether one of the types, such as `image/png` or `image/*`, is the content type."""
    family = content_type.partition("/")[0]
    return any(word in (content_type, f"{family}/*") for word in allowed)
