"""The terms of `partition_by` and `sort_by`, read and checked against the columns that the pipeline file declares.

Iceberg calls a column or a function of one a *term*. Whether a column is there, and what type it has, is often known only
when the table is: see `catalog.layout`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyiceberg import types
from pyiceberg.transforms import Transform, parse_transform

from frazil.column_names import Spellings, fold_case
from frazil.errors import SpecError, UnusableType
from frazil.spec.syntax.document import Node, Scalar, Section
from frazil.spec.syntax.forms import read_list, read_text, text_like
from frazil.spec.syntax.keys import Form, JsonSchema, Read
from frazil.spec.syntax.problems import Mistake, advice

if TYPE_CHECKING:
    from frazil.spec.syntax.reading import Reading

TRANSFORMS = ("year", "month", "day", "hour", "bucket", "truncate", "void")
METADATA_TYPES: Mapping[str, types.IcebergType] = {
    "topic": types.StringType(),
    "partition": types.IntegerType(),
    "offset": types.LongType(),
    "timestamp": types.TimestamptzType(),
}
"""Columns of `metadata` whose types do not depend on the records."""

_TIMES = TRANSFORMS[:4]
_WITH_NUMBER = ("bucket", "truncate")
_MOST = 2**31 - 1
_TERM = re.compile(r"(?P<word>[A-Za-z_]\w*)\s*\((?P<inside>[^()]*)\)|(?P<column>[^(),]+)")
_BRACKETS = re.compile(rf"(?P<word>{'|'.join(TRANSFORMS)})s?\s*\[(?P<inside>.*)", re.IGNORECASE)
"""A transform in the brackets that Iceberg shows it with."""
_NUMBER_FIRST = re.compile(r"(\d+)\]\s*\(([^()]+)")
"""The rest of `bucket[16](id)`, without the brackets at its ends."""
_SORTED = re.compile(r"(?P<term>.*?)(\s+(?P<way>asc|desc))?(\s+nulls\s+(?P<nulls>first|last))?", re.IGNORECASE)
_FORMS = "write a column, or year(x), month(x), day(x), hour(x), bucket(x, 16), truncate(x, 4) or void(x)"
_PLURALS = re.compile(r"(year|month|day|hour)s(?=\()")
_COMMAS = re.compile(r",(?![^()]*\))")
_SEPARATORS = re.compile(r"[,;|](?![^()]*\))")
"""What people write between terms of one text."""
_HAS_SYNTAX = re.compile(r"\(|\s(?:asc|desc|first|last)$", re.IGNORECASE)
"""What only a term has, and not the name of a column."""
_WITHOUT_COMMA = re.compile(r"(\S+)\s+(\d+)")
_CUT = re.compile(r"\w+\s*\([^()]*")
_ALLOWED = {
    "year": "a date or a timestamp",
    "month": "a date or a timestamp",
    "day": "a date or a timestamp",
    "hour": "a timestamp",
    "bucket": "an int, long, decimal, date, time, timestamp, string, uuid, fixed or binary",
    "truncate": "an int, long, decimal, string or binary",
}
"""The types of columns that each transform is for."""
_QUOTES = 'put a term with a comma in quotes, such as `["bucket(x, 16)"]`: in a list a comma begins the next one'


def split_terms(text: str) -> list[str]:
    """Returns the terms of a partition spec: commas outside of parentheses divide, `days(x)` is `day(x)`."""
    plain = text.strip()
    if plain.startswith("[") and plain.endswith("]"):
        plain = plain[1:-1]
    return [_PLURALS.sub(r"\1", term.strip()) for term in _COMMAS.split(plain) if term.strip()]


@dataclass(frozen=True)
class PartitionTerm:
    """A column, by the path `column` (`a.b` is b in the struct a), or a transform of it in Iceberg's words: identity, day,
    bucket[16]. line: where the file has it; 0 if it does not.
    """

    column: str
    transform: str = "identity"
    line: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """As a pipeline file writes it."""
        word, _, number = self.transform.rstrip("]").partition("[")
        if word == "identity":
            return self.column
        return f"{word}({self.column}, {number})" if number else f"{word}({self.column})"

    @property
    def field_name(self) -> str:
        """The name of the partition field, as Iceberg's own changes of a partition spec make it."""
        word, _, number = self.transform.rstrip("]").partition("[")
        if word == "identity":
            return self.column
        endings = {"bucket": f"bucket_{number}", "truncate": f"trunc_{number}", "void": "null"}
        return f"{self.column}_{endings.get(word, word)}"


@dataclass(frozen=True)
class SortTerm:
    """A term that rows are sorted by, and where nulls go."""

    term: PartitionTerm
    is_descending: bool = False
    is_nulls_first: bool = True

    @property
    def text(self) -> str:
        """As a pipeline file writes it, in full."""
        way = "desc" if self.is_descending else "asc"
        return f"{self.term.text} {way} nulls {'first' if self.is_nulls_first else 'last'}"


def parse_term(text: str) -> PartitionTerm:
    """The term that `text` spells. Raises SpecError."""
    if bracketed := _BRACKETS.match(text.strip()):
        inside = _NUMBER_FIRST.sub(r"\2 \1", bracketed["inside"].strip(" ])"))
        raise _written_otherwise(text, bracketed["word"].lower(), inside)
    match = _TERM.fullmatch(text.strip())
    if match is None:
        remedy = _QUOTES if _CUT.fullmatch(text.strip()) else _FORMS
        raise SpecError(f"`{text}` is neither a column nor a transform of one", remedy=remedy)
    if match["column"]:
        return PartitionTerm(_column(text, match["column"]))
    word, (column, *numbers) = match["word"].lower(), [part.strip() for part in match["inside"].split(",")]
    if word == "identity":
        raise SpecError(f"`{text}` is the column itself", remedy=f"write `{column}`")
    if word not in TRANSFORMS:
        raise SpecError(f"the transform `{match['word']}` is unknown", remedy=advice(word, TRANSFORMS))
    if len(numbers) != (word in _WITH_NUMBER):
        raise _written_otherwise(text, word, column)
    transform = f"{word}[{_number(text, column, numbers[0])}]" if numbers else word
    return PartitionTerm(_column(text, column), transform)


def _written_otherwise(text: str, word: str, column: str) -> SpecError:
    """Returns the error of a transform whose column or number is written in another way."""
    meant = _WITHOUT_COMMA.fullmatch(column)
    name, number = meant.groups() if meant else (column or "x", 16)
    example = f"{word}({name}, {number})" if word in _WITH_NUMBER else f"{word}({name})"
    return SpecError(f"`{text}` is not how {word} is written", remedy=f"write `{example}`")


def _number(text: str, column: str, number: str) -> int:
    if number.isdecimal() and number.isascii() and 1 <= int(number) <= _MOST:
        return int(number)
    word = text.split("(", maxsplit=1)[0].strip()
    remedy = f"write `{word}({column}, 16)`, or another number of 1 to {_MOST}"
    if column.isdecimal():
        remedy = f"the column comes first: `{word}({number}, {column})`"
    raise SpecError(f"`{text}` needs a whole number of at least 1", remedy=remedy)


def _column(text: str, column: str) -> str:
    column = column.strip()
    if not column or not all(column.split(".")):
        raise SpecError(f"`{text}` names no column", remedy="write a column's name; `a.b` is b in the struct a")
    return column


def parse_sort(text: str) -> SortTerm:
    """The sort term that `text` spells: a term, asc or desc, nulls first or last. Raises SpecError."""
    match = _SORTED.fullmatch(text.strip())
    assert match is not None
    term = parse_term(match["term"])
    if term.transform == "void":
        raise SpecError(f"`{text}` sorts nothing: void is null in every row", remedy="remove it")
    is_descending = (match["way"] or "asc").lower() == "desc"
    nulls = (match["nulls"] or ("last" if is_descending else "first")).lower()
    return SortTerm(term, is_descending, nulls == "first")


def _read_partition_by(node: Node, _: Reading) -> tuple[PartitionTerm, ...]:
    terms: list[PartitionTerm] = []

    def read_one(item: Node) -> None:
        text = _one_term(item, node, parse_term)
        term = parse_term(text)
        _check_redundant(term, terms)
        terms.append(replace(term, line=item.line))

    _read_terms(node, read_one)
    return tuple(terms)


def _read_sort_by(node: Node, _: Reading) -> tuple[SortTerm, ...]:
    sorts: list[SortTerm] = []

    def read_one(item: Node) -> None:
        text = _one_term(item, node, parse_sort)
        sort = parse_sort(text)
        if any(other.term == sort.term for other in sorts):
            raise SpecError(f"`{sort.term.text}` occurs twice in `sort_by`", remedy="keep one of them")
        sorts.append(replace(sort, term=replace(sort.term, line=item.line)))

    _read_terms(node, read_one)
    return tuple(sorts)


def _read_terms(node: Node, read_one: Callable[[Node], None]) -> None:
    """Reads each term; one may be written without a list."""
    if isinstance(node, Scalar) and node.kind == "text":
        read_one(node)
    else:
        read_list(node, read_one)


def _one_term(item: Node, node: Node, parse: Callable[[str], PartitionTerm | SortTerm]) -> str:
    """Returns the text of an entry of the list `node`, or of `node` itself.

    Raises: SpecError where it has several terms: alone a text is not the name of a column with a separator in it.
    """
    if isinstance(item, Section) and len(item) == 1 and isinstance(column := next(iter(item.values())), Scalar):
        word = next(iter(item))
        if word.lower() in TRANSFORMS:
            raise _written_otherwise(f"{word}: {column.text}", word.lower(), column.text)
    text = read_text(item)
    terms = [term.strip() for term in _SEPARATORS.split(text) if term.strip()]
    if len(terms) < 2 or (item is not node and not any(map(_HAS_SYNTAX.search, terms))):
        return text
    for term in terms:
        try:
            parse(term)
        except SpecError:
            return text
    listed = ", ".join(f'"{term}"' if "," in term else term for term in terms)
    remedy = f"write `[{listed}]`" if item is node else f"write each as an entry of the list: `{listed}`"
    raise SpecError(f"`{text}` has {len(terms)} terms in one text", remedy=remedy)


def _check_redundant(term: PartitionTerm, others: Sequence[PartitionTerm]) -> None:
    """Iceberg has one partition field of a column and transform, and of all transforms of time one."""
    for other in others:
        if fold_case(term.column) != fold_case(other.column):
            continue
        if term.transform == other.transform:
            raise SpecError(f"`{term.text}` occurs twice in `partition_by`", remedy="keep one of them")
        if term.transform in _TIMES and other.transform in _TIMES:
            finer = max(term.transform, other.transform, key=_TIMES.index)
            raise SpecError(
                f"`{term.text}` and `{other.text}` are both of the time of `{term.column}`",
                remedy=f"keep `{finer}({term.column})`: it prunes as the other does",
            )


def _one_or_several(term: JsonSchema, read: Read) -> Form:
    return Form({"anyOf": [term, {"type": "array", "items": term, "uniqueItems": True}]}, read=read)


PARTITION_BY = _one_or_several(
    text_like("region", "day(_timestamp)", "bucket(user.id, 16)", "truncate(email, 5)"), _read_partition_by
)
SORT_BY = _one_or_several(text_like("user.id", "ts desc", "hour(ts) asc nulls last"), _read_sort_by)


def check_type(term: PartitionTerm, kind: types.IcebergType) -> None:
    """Raises UnusableType when Iceberg does not allow the term's transform for a column of this type; SpecError where its
    values cannot be written.
    """
    if not kind.is_primitive or not transform_of(term.transform).can_transform(kind):
        remedy = "write a field inside it, such as `a.b`" if isinstance(kind, types.StructType) else _remedy(term)
        is_text = isinstance(kind, types.StringType)
        if term.transform in _TIMES and (is_text or isinstance(kind, types.IntegerType | types.LongType)):
            what = f"{term.transform} is for {_ALLOWED[term.transform]}"
            unit, word = (
                ("", "timestamptz")
                if is_text
                else (" with the unit of its numbers (s, ms, us or ns)", "timestamptz(ms)")
            )
            remedy = f"{what}: declare it as one{unit} before the table is made, {_as_time(term, word)}"
        message = f"`{term.text}`: the column `{term.column}` has the type {_word(kind)}"
        raise UnusableType(message, term.column.split("."), remedy=remedy)
    if term.transform == "identity" and isinstance(kind, types.FixedType):
        # Iceberg's Java library puts a length before such a value in a manifest, and only it can read that.
        remedy = f"write `bucket({term.column}, 16)`, or declare the column as binary"
        raise SpecError(f"`{term.text}`: the column `{term.column}` has the type {kind}", remedy=remedy)


def _as_time(term: PartitionTerm, word: str) -> str:
    """The setting that makes a column of time, of the type `word`, of text or numbers in the fields of records."""
    names = term.column.split(".")
    if len(names) == 1:
        return f"`columns: {{{names[0]}: {word}}}`"
    transform = f"{term.transform}({names[-1]})"
    return f"`columns: {{{names[-1]}: {{type: {word}, field: {term.column}}}}}`, and `{transform}`"


def transform_of(word: str) -> Transform[object, object]:
    """Iceberg's transform of that name."""
    transform: Transform[object, object] = parse_transform(word)
    return transform


def _word(kind: types.IcebergType) -> str:
    return type(kind).__name__.removesuffix("Type").lower() if not kind.is_primitive else str(kind)


def _remedy(term: PartitionTerm) -> str:
    word = term.transform.split("[", maxsplit=1)[0]
    return f"{word} is for {_ALLOWED[word]}" if word in _ALLOWED else "write a column that is not a list, map or struct"


def find_type(path: str, fields: Mapping[str, types.IcebergType]) -> types.IcebergType | None:
    """The type of the column at `path`, in any case, among these; None without one. Names may have dots themselves."""
    spellings = Spellings(fields)
    if spelling := spellings.find(path):
        return fields[spelling]
    for cut in (n for n, character in enumerate(path) if character == "."):
        name = spellings.find(path[:cut])
        kind = fields[name] if name is not None else None
        if isinstance(kind, types.StructType):
            members: Sequence[types.NestedField] = kind.fields
            inner = find_type(path[cut + 1 :], {member.name: member.field_type for member in members})
            if inner is not None:
                return inner
    return None


def check_terms(
    terms: Sequence[PartitionTerm], fields: Mapping[str, types.IcebergType], is_complete: bool
) -> Iterator[Mistake]:
    """Yields terms that the declared columns, `fields`, do not allow; is_complete: the table has no others."""
    for term in terms:
        kind = find_type(term.column, fields)
        if kind is not None:
            try:
                check_type(term, kind)
            except SpecError as error:
                yield Mistake((), error.message, error.remedy, term.line)
        elif is_complete or is_declared_otherwise(term.column, fields):
            message = f"`{term.text}`: there is no column `{term.column}`"
            yield Mistake((), message, advice(term.column, fields), term.line)


def is_declared_otherwise(path: str, fields: Mapping[str, types.IcebergType]) -> bool:
    """Whether the path leads into a column that is no struct; a struct may get more fields."""
    kind = fields.get(Spellings(fields).find(path.split(".")[0]) or "")
    return kind is not None and not isinstance(kind, types.StructType)
