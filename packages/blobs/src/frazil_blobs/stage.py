"""The key `blobs` as a stage: columns of bytes become structs behind the table's query, and wrong objects are refused.

What leaves the row is written with the table's files (`packs`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from frazil.errors import SpecError
from frazil.plugins.registration import function_of
from frazil.plugins.stages import Refusal, StageCheck, StageKind, StageResult
from frazil.printable import plural
from frazil.queries.program import Call, Expression, Field, Literal
from frazil.stages.changes import Changes, ReadRecords
from frazil.stages.row_stage import RowStage
from frazil.stages.stage import Assembler, RowWriter
from frazil.write.target import TableTarget
from frazil_blobs.extract import INFO, require_readers
from frazil_blobs.models import try_model, vectors_of
from frazil_blobs.pictures import thumbnail_of
from frazil_blobs.settings import BlobSettings, MiB
from frazil_blobs.signatures import LONGEST, content_type_of, is_allowed
from frazil_blobs.values import BLOB, COLUMNS_MARK, FIELDS, Path, is_blob, member_at, sizes_of, slices_of

if TYPE_CHECKING:
    from frazil.spec.models import TableSpec

VECTOR = pa.list_(pa.field("element", pa.float32()))
"""The column of vectors that a model makes."""


def reshape(settings: BlobSettings, types: Mapping[str, pa.DataType]) -> dict[str, Expression]:
    """Returns the columns with objects as structs, whose only field that is set is `inline`.

    Raises: SpecError for a column that has no bytes.
    """
    columns: dict[str, Expression] = {}
    for text in (*settings.columns, *settings.referring):
        name, *inner = text.split(".")
        member = "uri" if text in settings.referring else "inline"
        if name in types:  # Otherwise the table gets it with the first record that has it.
            columns[name] = _reshaped(columns.get(name, Field(name, types[name])), tuple(inner), text, member)
    for key, name, kind in _new_columns(settings):
        if name in types:
            raise SpecError(
                f"the records have a field `{name}`, the name of a column that `blobs.{key}` makes",
                remedy=f"choose another name under `{key}`",
            )
        columns[name] = Literal(None, kind)
    return columns


def _new_columns(settings: BlobSettings) -> Iterator[tuple[str, str, pa.DataType]]:
    """Yields each column that the table gets besides: the key of the settings, its name and its type."""
    yield from (("extract", name, INFO) for name in settings.extract.values())
    yield from (("thumbnails", thumbnail.column, pa.binary()) for thumbnail in settings.thumbnails.values())
    yield from (("embeddings", name, VECTOR) for name, embedding in settings.embeddings.items() if embedding.of)


def _reshaped(value: Expression, path: Path, text: str, member: str) -> Expression:
    """Returns an expression with what is at a path in it as the member of a struct. text: the whole path, for messages."""
    kind = value.type
    if not path:
        if is_blob(kind):
            return value
        if kind != BLOB.field(member).type:
            is_bytes = member == "inline"
            raise SpecError(
                f"`blobs` has the column `{text}`, which is {kind} and not {'bytes' if is_bytes else 'text'}",
                remedy=f"declare it, `columns: {{{text}: {'binary' if is_bytes else 'string'}}}`, or take it out of `blobs`",
            )
        return _struct(
            {name: value if name == member else Literal(None, BLOB.field(name).type) for name in FIELDS}, text
        )
    if not pa.types.is_struct(kind) or kind.get_field_index(path[0]) < 0:
        if pa.types.is_struct(kind):
            return value  # The table gets it with the first record that has it.
        raise SpecError(
            f"`blobs` has the column `{text}`, and what is around it is {kind} and not a struct",
            remedy="name a column of bytes, or one in structs alone",
        )
    members = {}
    for n in range(kind.num_fields):
        part = kind.field(n)
        inside: Expression = Call("GetStructField", (value,), part.type, (("ordinal", n),), f"{text}")
        members[part.name] = _reshaped(inside, path[1:], text, member) if part.name == path[0] else inside
    struct = _struct(members, text)
    is_null = Call("IsNull", (value,), pa.bool_(), (), f"{text} is null")
    return Call("If", (is_null, Literal(None, struct.type), struct), struct.type, (), text)


def _struct(members: Mapping[str, Expression], text: str) -> Call:
    arguments: list[Expression] = []
    for name, member in members.items():
        arguments += [Literal(name, pa.string()), member]
    kind = pa.struct([(name, member.type) for name, member in members.items()])
    return Call("CreateNamedStruct", tuple(arguments), kind, (), text)


def run(settings: BlobSettings, columns: Mapping[str, pa.Array]) -> StageResult:
    """Refuses rows with an object that is too large, or of a type that its column must not have."""
    refused: list[Refusal] = []
    for text in settings.columns:
        name, *inner = text.split(".")
        array = columns.get(name)
        blobs = None if array is None else blobs_at(array, inner)
        if blobs is not None:
            if text not in settings.referring:
                refused += _addresses(text, pa.compute.struct_field(blobs, "uri"))
            refused += _refusals(settings, text, pa.compute.struct_field(blobs, "inline"))
    new = dict(_new_values(settings, columns))
    for name, embedding in settings.embeddings.items():
        if name in columns:
            refused += _wrong_vectors(name, embedding.dimension, new.get(name, columns[name]))
    return StageResult(new, refused=refused)


def _new_values(settings: BlobSettings, columns: Mapping[str, pa.Array]) -> Iterator[tuple[str, pa.Array]]:
    """Yields what is made of pictures, by column."""
    for text, thumbnail in settings.thumbnails.items():
        if thumbnail.column in columns:
            small = [content and thumbnail_of(content, thumbnail.size) for content in _contents(columns, text)]
            yield thumbnail.column, pa.array(small, columns[thumbnail.column].type)
    for name, embedding in settings.embeddings.items():
        if embedding.model is not None and embedding.of is not None and name in columns:
            vectors = vectors_of(embedding.model, embedding.dimension, _contents(columns, embedding.of))
            yield name, pa.array(list(vectors), columns[name].type)


def _contents(columns: Mapping[str, pa.Array], text: str) -> list[bytes | None]:
    """Returns the bytes of the objects of a column; null for none, and for those that only their address is known of."""
    name, *inner = text.split(".")
    blobs = blobs_at(columns[name], inner) if name in columns else None
    if blobs is None:
        return [None] * len(next(iter(columns.values())))
    contents: list[bytes | None] = pa.compute.struct_field(blobs, "inline").to_pylist()
    return contents


def blobs_at(array: pa.Array, path: list[str]) -> pa.Array | None:
    """Returns the structs at a path inside of a column; None where it has none yet."""
    kind = array.type
    for name in path:
        if not pa.types.is_struct(kind) or kind.get_field_index(name) < 0:
            return None
        kind = kind.field(name).type
    return member_at(array, path) if is_blob(kind) else None


def _addresses(text: str, uris: pa.Array) -> Iterator[Refusal]:
    """Yields the rows whose record is such a struct itself and names a place: readers would fetch whatever is there."""
    has_address = np.asarray(uris.is_valid())
    if has_address.any():
        yield Refusal(has_address, text, "the record has an address in place of an object")


def _refusals(settings: BlobSettings, text: str, inline: pa.Array) -> Iterator[Refusal]:
    sizes = sizes_of(inline)
    is_large = sizes > settings.limit
    if is_large.any():
        yield Refusal(is_large, text, f"the object is larger than `blobs.limit`, {settings.limit:,} bytes")
    allowed = settings.types.get(text)
    if not allowed:
        return
    rows = np.flatnonzero(np.asarray(inline.is_valid()))
    kinds = np.array([content_type_of(piece[:LONGEST].to_pybytes()) for piece in slices_of(inline, rows)], object)
    for kind in dict.fromkeys(kinds.tolist()):
        if not is_allowed(kind, allowed):
            mask = np.zeros(len(inline), np.bool_)
            mask[rows[kinds == kind]] = True
            yield Refusal(mask, text, f"the bytes are {kind}, and `blobs.types` has {', '.join(allowed)}")


def _wrong_vectors(name: str, dimension: int, vectors: pa.Array) -> Iterator[Refusal]:
    """Yields the vectors that have another number of values, and those with a value that is not a number.

    Raises: SpecError for a column that has no vectors.
    """
    if not pa.types.is_list(vectors.type) or not pa.types.is_floating(vectors.type.value_type):
        raise SpecError(
            f"`blobs.embeddings` has the column `{name}`, which is {vectors.type}",
            remedy=f"declare it, `columns: {{{name}: list<float>}}`",
        )
    lengths = pa.compute.list_value_length(vectors).fill_null(dimension)
    is_short = np.asarray(pa.compute.not_equal(lengths, dimension))
    if is_short.any():
        yield Refusal(is_short, name, f"the vector does not have {dimension} values, as `blobs.embeddings` has it")
    values, parents = pa.compute.list_flatten(vectors), pa.compute.list_parent_indices(vectors)
    is_wrong = np.zeros(len(vectors), np.bool_)
    is_wrong[np.asarray(parents)[~np.asarray(pa.compute.is_finite(values).fill_null(False))]] = True
    if (is_wrong & ~is_short).any():
        yield Refusal(is_wrong & ~is_short, name, "the vector has a value that is null, infinite or not a number")


def plan(settings: BlobSettings) -> str:
    """Returns the line of `frazil plan`."""
    columns, above = ", ".join((*settings.columns, *settings.referring)), settings.above
    return f"objects of {columns} above {above:,} bytes are in packs of {settings.pack / MiB:g} MiB in {settings.store}"


def check(settings: BlobSettings, location: str | None) -> Iterator[StageCheck]:
    """Yields whether the packs are outside the table's folder, whose unknown files others remove as orphans."""
    tried = f"compared {settings.store} with the location of the table"
    if location is None:
        yield StageCheck(True, tried, "the table is not created yet; its location must be another folder")
    elif is_within(settings.store, location):
        danger = f"the packs are in {location}, the table's own folder: `remove_orphan_files` would delete them"
        yield StageCheck(False, tried, danger, f"write another folder as `blobs.store`, outside {location}")
    else:
        yield StageCheck(True, tried, "the packs are outside the table's folder, so nobody takes them for orphans")


def check_readers() -> StageCheck:
    """Returns whether what reads pictures, films and sounds is installed on this machine."""
    tried = "looked for what `extract` and `thumbnails` need"
    try:
        require_readers()
    except SpecError as error:
        return StageCheck(False, tried, error.message, error.remedy)
    return StageCheck(True, tried, "Pillow and tinytag are installed")


def check_models(settings: BlobSettings) -> Iterator[StageCheck]:
    """Yields whether each model can be loaded on this machine, and makes vectors of the declared dimension."""
    for column, embedding in settings.embeddings.items():
        if embedding.model is not None:
            tried = f"made a vector for `{column}` by {embedding.model}"
            try:
                try_model(embedding.model, embedding.dimension)
            except SpecError as error:
                yield StageCheck(False, tried, error.message, error.remedy)
            else:
                yield StageCheck(True, tried, f"the vector has {plural(embedding.dimension, 'value')}")


def is_within(store: str, location: str) -> bool:
    """Whether a folder is the table's location or is inside of it."""
    folder, root = (_plain(address) for address in (store, location))
    return folder == root or folder.startswith(f"{root}/")


def _plain(address: str) -> str:
    """Returns an address as it is compared: `s3a` is S3, and a local path is one however it is written."""
    scheme, separator, rest = address.rstrip("/").partition(":")
    if not separator or scheme == "file":
        return "/" + (rest if separator else scheme).lstrip("/")
    return f"{'s3' if scheme in ('s3a', 's3n') else scheme}:{rest}"


class BlobStage(RowStage):
    """The key `blobs` of a table: it looks at the objects only, and never changes one."""

    actions = ("blobs_compact", "blobs_index", "blobs_sweep")

    def describe(self) -> str:
        """See TableStage."""
        return f"{self.name}: {plan(self.settings)}"

    def after_query(self, types: Mapping[str, pa.DataType]) -> Mapping[str, Expression]:
        """See TableStage."""
        return reshape(self.settings, types)

    def check_table(self, location: str | None) -> Iterator[StageCheck]:
        """See TableStage."""
        yield from check(self.settings, location)
        if self.settings.extract or self.settings.thumbnails:
            yield check_readers()
        yield from check_models(self.settings)

    def change(self, columns: Mapping[str, pa.Array]) -> StageResult:
        """See RowStage."""
        return run(self.settings, columns)

    def refuse(self, target: TableTarget, columns: Mapping[str, pa.Array]) -> Sequence[Refusal]:
        """See RowStage."""
        refusals: Sequence[Refusal] = function_of("frazil_blobs.incoming:refuse")(self.settings, target, columns)
        return refusals

    def run(self, target: TableTarget, read: ReadRecords, changes: Changes) -> Changes:
        """See TableStage."""
        changes = super().run(target, read, changes)
        is_replay = not read.topic or target.changes is not None  # A sample of `frazil plan` has parts too.
        if self.settings.chunks is not None and is_replay:
            changes = function_of("frazil_blobs.chunks:refuse_parts")(read, changes)
        return changes

    @property
    def needs_headers(self) -> bool:
        """See TableStage."""
        return self.settings.chunks is not None

    def assembler(self, target: TableTarget, topic: str) -> Assembler | None:
        """See TableStage."""
        most_bytes = (target.source or target).reading.max_record_bytes
        assembler: Assembler | None = function_of("frazil_blobs.chunks:assemble")(self.settings, topic, most_bytes)
        return assembler

    def new_marks(
        self, _spec: TableSpec, marks: Mapping[str, str], _key_columns: Callable[[], Sequence[str]]
    ) -> Mapping[str, str]:
        """See TableStage."""
        return new_marks(self.settings, marks)

    def open(self, target: TableTarget) -> RowWriter | None:
        """See TableStage."""
        writer: RowWriter | None = function_of("frazil_blobs.packs:open_packs")(self.settings, target)
        return writer


def new_marks(settings: BlobSettings, known: Mapping[str, str]) -> dict[str, str]:
    """Returns which columns have objects, or had some, and dimension and distance of the vectors of each column, where
    the table has not noted them for its readers.

    Raises: SpecError for another dimension than that of the vectors so far.
    """
    missing: dict[str, str] = {}
    for column, embedding in settings.embeddings.items():
        name, text = f"embedding.{column}", f"{embedding.dimension} {embedding.distance}"
        was = known.get(name, text).split()[0]
        if was != str(embedding.dimension):
            raise SpecError(
                f"the vectors of `{column}` have {was} values, and `blobs.embeddings` has {embedding.dimension}",
                remedy="write the old number, and put vectors of another model into a new column",
            )
        if known.get(name) != text:
            missing[name] = text
    names = dict.fromkeys(
        (*filter(None, known.get(COLUMNS_MARK, "").split(",")), *settings.columns, *settings.referring)
    )
    if known.get(COLUMNS_MARK) != ",".join(names):
        missing[COLUMNS_MARK] = ",".join(names)
    return missing


STAGE = StageKind(BlobSettings, BlobStage)
