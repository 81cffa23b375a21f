"""A snapshot as shards of WebDataset: tar files whose members are the fields of samples."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from pathlib import Path as FilePath

from frazil_blobs.dataset import BlobDataset, Sample
from frazil_blobs.settings import MiB
from frazil_blobs.signatures import LONGEST, content_type_of

SHARD_BYTES = 512 * MiB
"""The size at which the next shard begins."""
_EXTENSIONS = {
    "image/jpeg": "jpg", "image/png": "png", "image/gif": "gif", "image/webp": "webp", "image/tiff": "tiff",
    "image/bmp": "bmp",
    "application/pdf": "pdf", "video/mp4": "mp4", "video/quicktime": "mov", "video/webm": "webm", "video/x-matroska": "mkv",
    "audio/wav": "wav", "audio/mpeg": "mp3", "audio/flac": "flac", "application/ogg": "ogg", "application/vnd.las": "las",
    "model/e57": "e57", "application/vnd.pcd": "pcd", "application/vnd.ply": "ply",
}  # fmt: skip


def export_webdataset(dataset: BlobDataset, folder: FilePath, *, shard_bytes: int = SHARD_BYTES) -> list[FilePath]:
    """Writes the samples of one epoch of a dataset, in its order, as shards `000000.tar` and so on; returns them. Each
    sample has a member for each object, whose extension is its type, and a member `json` with all else.
    """
    folder.mkdir(parents=True, exist_ok=True)
    shards: list[FilePath] = []
    shard: tarfile.TarFile | None = None
    size = 0
    try:
        for number, sample in enumerate(dataset):
            if shard is None or size >= shard_bytes:
                if shard is not None:
                    shard.close()
                shards.append(folder / f"{len(shards):06}.tar")
                shard, size = tarfile.open(shards[-1], "w"), 0  # noqa: SIM115  (closed below, or before the next)
            for name, content in _members(sample):
                member = tarfile.TarInfo(f"{number:09}.{name}")
                member.size = len(content)
                shard.addfile(member, io.BytesIO(content))
                size += len(content)
    finally:
        if shard is not None:
            shard.close()
    return shards


def _members(sample: Sample) -> Iterator[tuple[str, bytes]]:
    """Yields the members of a sample, each with what follows the sample's number in its name."""
    others: Sample = {}
    for name, value in sample.items():
        if isinstance(value, bytes):
            extension = _EXTENSIONS.get(content_type_of(value[:LONGEST]), "bin")
            yield f"{name.replace('.', '_')}.{extension}", value
        else:
            others[name] = value
    yield "json", json.dumps(others, default=str, ensure_ascii=False).encode()
