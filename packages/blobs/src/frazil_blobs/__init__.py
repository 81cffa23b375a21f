"""Large objects beside their Iceberg table: `read`, `BlobDataset`, `export_webdataset`, `export_lance`, `search`.

Each is imported when it is first used: `frazil --help` imports the package too.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil_blobs.dataset import BlobDataset as BlobDataset
    from frazil_blobs.export import export_webdataset as export_webdataset
    from frazil_blobs.gallery import write_gallery as write_gallery
    from frazil_blobs.lance_export import export_lance as export_lance
    from frazil_blobs.reading import read as read
    from frazil_blobs.vectors import build_index as build_index
    from frazil_blobs.vectors import search as search

_HOMES = {
    "BlobDataset": "dataset",
    "build_index": "vectors",
    "export_lance": "lance_export",
    "export_webdataset": "export",
    "read": "reading",
    "search": "vectors",
    "write_gallery": "gallery",
}
__all__ = ["BlobDataset", "build_index", "export_lance", "export_webdataset", "read", "search", "write_gallery"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'frazil_blobs' has no attribute '{name}'")
    return getattr(importlib.import_module(f"frazil_blobs.{_HOMES[name]}"), name)
