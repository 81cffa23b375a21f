"""Large objects beside their Iceberg table: `read` the bytes of a column, `BlobDataset` for training, `export_webdataset`.

Each is imported when it is first used: `frazil --help` imports the package too.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from frazil_blobs.dataset import BlobDataset as BlobDataset
    from frazil_blobs.export import export_webdataset as export_webdataset
    from frazil_blobs.reading import read as read

_HOMES = {"BlobDataset": "dataset", "export_webdataset": "export", "read": "reading"}
__all__ = ["BlobDataset", "export_webdataset", "read"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'frazil_blobs' has no attribute '{name}'")
    return getattr(importlib.import_module(f"frazil_blobs.{_HOMES[name]}"), name)
