"""The kinds of sketches that `merge` makes: of each, its form in parts, its union, and its image in the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from frazil_state.merge import quantiles, sketches

Arrays = tuple[pa.Array, ...]


@dataclass(frozen=True)
class SketchKind:
    """One kind of sketch."""

    #: What the names of its columns in parts begin with.
    names: tuple[str, ...]
    #: Returns a sketch of each value.
    of_values: Callable[[pa.Array], Arrays]
    #: Returns the sketches of images.
    of_images: Callable[[pa.Array], Arrays]
    #: Returns the union of the sketches of each group: takes the columns, the group of each sketch, which sketches count,
    #: and the number of groups.
    united: Callable[..., Arrays]
    #: Returns the images of sketches.
    images: Callable[..., pa.Array]


SKETCHES: Mapping[str, SketchKind] = {
    sketches.SKETCH: SketchKind(
        ("\x00hashes", "\x00bound"), sketches.sketches_of, sketches.sketches_in, sketches.united, sketches.images_of
    ),
    quantiles.QUANTILES: SketchKind(
        ("\x00items", "\x00levels", "\x00least", "\x00most"),
        quantiles.sketches_of,
        quantiles.sketches_in,
        quantiles.united,
        quantiles.images_of,
    ),
}
"""By the function of `merge`."""
