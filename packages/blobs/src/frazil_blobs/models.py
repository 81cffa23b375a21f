"""Vectors of pictures by a model in a file of ONNX, some pictures at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from frazil.errors import SpecError
from frazil_blobs.pictures import pixels_of

AT_ONCE = 32
_CHANNELS = 3
_AXES = 4


def vectors_of(file: str, dimension: int, contents: Sequence[bytes | None]) -> Iterator[NDArray[np.float32] | None]:
    """Yields the vector of each picture, float32 of shape (dimension,); None for what is not a picture. file: the model,
    whose one input is pictures, float32 of shape (n, 3, height, width) or (n, height, width, 3), n free or 1: red,
    green and blue from 0 to 1.

    Raises: SpecError where onnxruntime or Pillow is not installed, or the file is not such a model.
    """
    model = _model(file, _changed_ns(file))
    for begin in range(0, len(contents), AT_ONCE):
        yield from model.vectors(dimension, contents[begin : begin + AT_ONCE])


def try_model(file: str, dimension: int) -> None:
    """Makes the vector of one black picture. Raises: SpecError, as `vectors_of`."""
    _model(file, _changed_ns(file)).try_one(dimension)


class _Model:
    """A loaded model."""

    def __init__(self, file: str) -> None:
        runtime = _runtime()
        options = runtime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1  # A task has one core.
        self._file = file
        try:
            self._session: Any = runtime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # noqa: BLE001  (whatever the runtime raises)
            raise _wrong(file, f"it cannot be loaded: {error}") from None
        inputs = self._session.get_inputs()
        shape: list[Any] = list(inputs[0].shape) if len(inputs) == 1 else []
        if (
            len(shape) != _AXES
            or inputs[0].type != "tensor(float)"
            or _CHANNELS not in (shape[1], shape[3])
            or not all(isinstance(axis, int) and axis > 0 for axis in shape[1:])
            or (isinstance(shape[0], int) and shape[0] != 1)
        ):
            raise _wrong(file, f"its input is not pictures of one size, but {shape}")
        self._is_planar = shape[1] == _CHANNELS
        self._height, self._width = (shape[2], shape[3]) if self._is_planar else (shape[1], shape[2])
        self._input = inputs[0].name
        self._most_at_once = AT_ONCE if isinstance(shape[0], str | None) else 1

    def vectors(self, dimension: int, contents: Sequence[bytes | None]) -> Iterator[NDArray[np.float32] | None]:
        """Yields the vectors of some pictures."""
        pixels = [None if content is None else pixels_of(content, self._width, self._height) for content in contents]
        pictures = [some for some in pixels if some is not None]
        at_once = [
            pictures[begin : begin + self._most_at_once] for begin in range(0, len(pictures), self._most_at_once)
        ]
        vectors = (vector for some in at_once for vector in self._run(dimension, np.stack(some)))
        yield from (None if some is None else next(vectors) for some in pixels)

    def try_one(self, dimension: int) -> None:
        """Raises SpecError where the model does not make a vector of a picture."""
        self._run(dimension, np.zeros((1, self._height, self._width, _CHANNELS), np.float32))

    def _run(self, dimension: int, pictures: NDArray[np.float32]) -> NDArray[np.float32]:
        if self._is_planar:
            pictures = np.ascontiguousarray(pictures.transpose(0, 3, 1, 2))
        try:
            vectors = np.asarray(self._session.run(None, {self._input: pictures})[0], np.float32)
        except Exception as error:  # noqa: BLE001  (whatever the runtime raises)
            raise _wrong(self._file, f"it fails: {error}") from None
        if vectors.size != len(pictures) * dimension:
            raise _wrong(self._file, f"its output is {list(vectors.shape)}, and `dimension` is {dimension}")
        return vectors.reshape(len(pictures), dimension)


@lru_cache(maxsize=4)
def _model(file: str, changed_ns: int) -> _Model:  # noqa: ARG001  (another model has another time)
    return _Model(file)


def _changed_ns(file: str) -> int:
    try:
        return Path(file).stat().st_mtime_ns
    except OSError as error:
        raise _wrong(file, str(error.strerror)) from None


def _wrong(file: str, words: str) -> SpecError:
    remedy = "write the path of a model that all tasks can read, as `model` of `blobs.embeddings`"
    return SpecError(f"the model cannot be used: {words}", remedy=remedy, where=file)


def _runtime() -> Any:
    for module, name in (("onnxruntime", "onnxruntime"), ("PIL", "Pillow")):
        if find_spec(module) is None:
            remedy = (
                "install `frazil-blobs[models]` with pip from where Frazil was installed, or take `model` out of"
                " `blobs.embeddings`"
            )
            raise SpecError(f"`model` of `blobs.embeddings` needs {name}, which is not installed", remedy=remedy)
    import onnxruntime  # type: ignore[import-untyped]  # noqa: PLC0415  (an extra)

    return onnxruntime
