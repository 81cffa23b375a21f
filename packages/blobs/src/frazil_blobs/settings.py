"""The key `blobs` of a table: which columns have objects, and where and how these are kept."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from frazil.spec.syntax.problems import read_setting, refused
from frazil.spec.syntax.units import parse_days, parse_size
from frazil.stages.settings import StageSettings
from frazil.store.addresses import address_of

MiB = 1024 * 1024
_MEDIA_TYPE = re.compile(r"[a-z0-9!#$&^_.+-]+/([a-z0-9!#$&^_.+-]+|\*)")


def _size(value: Any) -> Any:
    """Returns a size such as `64KiB` as a number of bytes; 0 needs no unit."""
    if not isinstance(value, str | int):
        raise refused("it is not a size", "write a number and a unit, such as `64KiB`")
    return read_setting(parse_size, value) if isinstance(value, str) and value != "0" else value


def _duration_s(value: Any) -> Any:
    """Returns a time such as `30d` or `12h` in seconds."""
    if not isinstance(value, str | int | float):
        raise refused("it is not a time", "write days or a duration, such as `30d` or `12h`")
    return read_setting(parse_days, value) if isinstance(value, str) else value


def _check_address(location: str) -> str:
    """Returns an address that tasks can write to and read from. Raises: an error of a setting for another one."""
    read_setting(address_of, location)
    return location


Size = Annotated[int, BeforeValidator(_size), Field(ge=0)]


class EmbeddingSettings(BaseModel):
    """What the vectors of a column are."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: The number of values of each vector; a record with another number becomes a dead letter.
    dimension: Annotated[int, Field(ge=1)]
    #: By which distance `search` compares them.
    distance: Literal["cosine", "l2", "dot"] = "cosine"
    #: Whether maintenance makes an index of them once a day.
    index: bool = False
    #: The path of a model in ONNX that makes them of the pictures `of`; None where records have them.
    model: str | None = None
    #: The column of pictures, of a model.
    of: str | None = None

    @model_validator(mode="after")
    def _check_model(self) -> Self:
        if (self.model is None) != (self.of is None):
            lacks = "of" if self.of is None else "model"
            remedy = "write `model` with the path of a file and `of` with the column of its pictures, or neither"
            raise refused(f"it has no `{lacks}`, which belongs to the other one", remedy)
        return self


class ThumbnailSettings(BaseModel):
    """Small pictures as a column."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: The new column of bytes.
    column: str
    #: The most pixels in each direction.
    size: Annotated[int, Field(ge=1, le=1024)] = 128


class ReferenceSettings(BaseModel):
    """Columns with addresses of objects that are in a store already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: The columns of text, each a path.
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    #: What an address must begin with: nothing else is ever asked for.
    allow: Annotated[tuple[str, ...], Field(min_length=1)]
    #: Whether the bytes are copied into packs; otherwise the row has the address, and the object may change.
    copies: Annotated[bool, Field(alias="copy")] = False
    #: What becomes of a record whose object does not exist: a dead letter, or the table waits for it.
    missing: Literal["dead_letter", "wait"] = "dead_letter"

    @field_validator("allow")
    @classmethod
    def _check_allow(cls, allow: tuple[str, ...]) -> tuple[str, ...]:
        for prefix in allow:
            if "://" not in prefix or not prefix.endswith("/"):
                remedy = "write one with its scheme and a slash at its end, such as s3://uploads/"
                raise refused(f"`{prefix}` is not the address of a folder", remedy)
            _check_address(prefix)
        return allow


class ChunkSettings(BaseModel):
    """Values in several records."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: The most offsets from the first part of a value to its last.
    within: Annotated[int, Field(ge=1)] = 1000


class BlobSettings(StageSettings):
    """What the key holds."""

    #: The columns of bytes, each a path such as `lidar.points`.
    columns: tuple[str, ...] = ()
    #: The folder or the bucket with the packs, outside of the table's location.
    store: str
    #: Objects of more bytes leave the row.
    above: Size = 64 * 1024
    #: The size of a pack to aim at.
    pack: Annotated[Size, Field(ge=1)] = 128 * MiB
    #: The largest object, in bytes; a record with a larger one becomes a dead letter.
    limit: Size = 1024 * MiB
    #: The age, in seconds, at which a pack is copied without the objects that no row has any more, however few they are.
    forget: Annotated[float, BeforeValidator(_duration_s), Field(ge=0)] = 30 * 24 * 3600.0
    #: By column, the content types that its objects may have, such as `image/*`. Others become dead letters.
    types: Mapping[str, tuple[str, ...]] = Field(default_factory=dict)
    #: By column of objects, the new column with what their headers contain.
    extract: Mapping[str, str] = Field(default_factory=dict)
    #: Columns with addresses of objects; None without any.
    references: ReferenceSettings | None = None
    #: How values are assembled of which several records have a part; None where each record is whole.
    chunks: ChunkSettings | None = None
    #: By column of objects, the new column with small pictures of them.
    thumbnails: Mapping[str, ThumbnailSettings] = Field(default_factory=dict)
    #: By column, a list of floats, what its vectors are.
    embeddings: Mapping[str, EmbeddingSettings] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if not self.columns and self.references is None:
            raise refused("it names no columns with objects", "write `columns: [image]`, or `references`")
        models = [embedding.of for embedding in self.embeddings.values() if embedding.of is not None]
        for name, columns in (("extract", self.extract), ("thumbnails", self.thumbnails), ("embeddings", models)):
            for column in columns:
                if column not in self.columns:
                    remedy = f"add `{column}` to `columns`, which has: {', '.join(self.columns)}"
                    raise refused(f"`{name}` has `{column}`, which `columns` does not name", remedy)
        return self

    @property
    def makes_rows(self) -> bool:
        """See StageSettings: columns of bytes become structs."""
        return True

    def in_folder(self, folder: str) -> Self:
        """See StageSettings."""
        return self.model_copy(update={"store": folder})

    @property
    def referring(self) -> tuple[str, ...]:
        """The columns with addresses."""
        return self.references.columns if self.references is not None else ()

    @field_validator("store")
    @classmethod
    def _check_store(cls, store: str) -> str:
        if "://" not in store:
            remedy = "write an address, such as s3://bucket/objects or file:///objects"
            raise refused(f"`{store}` is not an address with its scheme", remedy)
        return _check_address(store).rstrip("/")

    @field_validator("types", mode="before")
    @classmethod
    def _read_types(cls, types: Any) -> Any:
        """Returns each column's types as a list, also where the file has one alone."""
        if not isinstance(types, Mapping):
            return types
        return {column: (words,) if isinstance(words, str) else words for column, words in types.items()}

    @field_validator("types")
    @classmethod
    def _check_types(cls, types: Mapping[str, tuple[str, ...]]) -> Mapping[str, tuple[str, ...]]:
        for word in (word for words in types.values() for word in words):
            if not _MEDIA_TYPE.fullmatch(word):
                raise refused(f"`{word}` is not a content type", "write one such as image/png or image/*")
        return types
