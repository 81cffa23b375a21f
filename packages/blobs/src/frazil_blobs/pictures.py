"""Pictures as pixels: thumbnails, and the numbers that a model takes. A picture that cannot be decoded has neither."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from frazil_blobs.extract import FORMATS
from frazil_blobs.signatures import LONGEST, content_type_of

if TYPE_CHECKING:
    from PIL.Image import Image

_MOST_PIXELS = 64_000_000
"""A larger picture is not decoded: a file of some kilobytes may say that it has billions."""
_WITHOUT_ALPHA = ("1", "L", "RGB")
"""The modes of pictures one of whose colors may be transparent."""


def thumbnail_of(content: bytes, size: int) -> bytes | None:
    """Returns a picture of at most `size` pixels in each direction: PNG where it has transparent parts, else JPEG; None for
    what is not a picture.
    """
    with _opened(content, size) as picture:
        if picture is None:
            return None
        picture.thumbnail((size, size))
        has_alpha = picture.has_transparency_data
        stream = BytesIO()
        picture.convert("RGBA" if has_alpha else "RGB").save(stream, "PNG" if has_alpha else "JPEG", quality=85)
        return stream.getvalue()


def pixels_of(content: bytes, width: int, height: int) -> NDArray[np.float32] | None:
    """Returns a picture stretched to this size: red, green and blue from 0 to 1, float32 of shape (height, width, 3); None
    for what is not a picture.
    """
    with _opened(content, max(width, height)) as picture:
        if picture is None:
            return None
        pixels = np.asarray(picture.convert("RGB").resize((width, height)), np.float32)
        return pixels / np.float32(255)


@contextmanager
def _opened(content: bytes, size: int) -> Iterator[Image | None]:
    """Gives its block a decoded picture, which may be smaller than the original but not than `size`; None for none."""
    from PIL import Image, ImageOps  # noqa: PLC0415  (an extra, which takes a while)

    form = FORMATS.get(content_type_of(content[:LONGEST]))
    picture = None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # What is wrong with a picture is not the pipeline's.
            if form is not None:
                original = Image.open(BytesIO(content), formats=(form,))
                if original.width * original.height <= _MOST_PIXELS:
                    original.draft("RGB", (size, size))
                    original.load()
                    ImageOps.exif_transpose(original, in_place=True)
                    picture = _of_bytes(original)
                    picture.info.clear()  # Otherwise a comment or a profile of any size is written into thumbnails.
    except Exception:  # noqa: BLE001  (whatever a damaged picture makes Pillow raise)
        picture = None
    yield picture


def _of_bytes(picture: Image) -> Image:
    """Returns a picture whose channels have 8 bits each, with its transparent parts in a channel of their own."""
    from PIL import Image  # noqa: PLC0415  (an extra, which takes a while)

    if picture.mode.startswith("I;16"):  # Pillow makes white of all but the darkest, and no thumbnails of them.
        return Image.fromarray((np.asarray(picture) >> 8).astype(np.uint8))
    if "transparency" in picture.info and picture.mode in _WITHOUT_ALPHA:
        return picture.convert("RGBA")
    return picture
