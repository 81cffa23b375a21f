"""`frazil size`: estimates what a load takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from enum import StrEnum
from typing import Annotated, Any

import typer

from frazil.cli.output import Output
from frazil.errors import SpecError
from frazil.spec.syntax.units import parse_duration
from frazil_start.sizing import Load, Prices, Size, size_of


class Format(StrEnum):
    """The format of the records."""

    json = "json"
    avro = "avro"
    protobuf = "protobuf"


class Mode(StrEnum):
    """What records do to a table."""

    append = "append"
    upsert = "upsert"


_PRICES = Prices()
Records = Annotated[float, typer.Option("--records", help="Records per second, of all topics together.")]
Bytes = Annotated[int, typer.Option("--bytes", min=1, help="Bytes of a record's value.")]
Tables = Annotated[int, typer.Option("--tables", min=1, help="Tables that get records all the time.")]
Interval = Annotated[str, typer.Option("--interval", metavar="DURATION", help="The commit interval.")]
Formats = Annotated[Format, typer.Option("--format", help="The format of the records.")]
Modes = Annotated[Mode, typer.Option("--mode", help="Whether records are appended, or replace rows by key.")]
Rows = Annotated[int, typer.Option("--rows", min=0, help="Rows of all upsert tables together.")]
CorePrice = Annotated[float, typer.Option("--core-price", min=0, help="The price of a core for an hour.")]
MemoryPrice = Annotated[float, typer.Option("--memory-price", min=0, help="The price of a GiB of memory for an hour.")]
PutPrice = Annotated[float, typer.Option("--put-price", min=0, help="The price of 1,000 requests that write.")]
GetPrice = Annotated[float, typer.Option("--get-price", min=0, help="The price of 1,000 requests that read.")]


def command(  # noqa: PLR0913  (an option each)
    output: Output,
    records: Records = 1_000.0,
    bytes_: Bytes = 200,
    tables: Tables = 1,
    interval: Interval = "1s",
    format_: Formats = Format.json,
    mode: Modes = Mode.append,
    rows: Rows = 0,
    core_price: CorePrice = _PRICES.per_core_hour,
    memory_price: MemoryPrice = _PRICES.per_gib_hour,
    put_price: PutPrice = _PRICES.per_1000_puts,
    get_price: GetPrice = _PRICES.per_1000_gets,
) -> None:
    """Estimate the cores, the memory, the requests to the store and the price of a steady load.

    The estimate uses figures that were measured on the machine in docs/performance.md; another machine may be half or
    twice as fast. It does not include broker, catalog and storage. The command calls no service. The page on sizing has
    the formula.

    Exit code: 0; 2 when an argument is wrong.
    """
    if not 0 < records < float("inf"):
        raise SpecError("`--records` is not a number above 0", remedy="give the records per second, such as 500")
    load = Load(records, bytes_, tables, parse_duration(interval), format_.value, mode.value, rows)
    prices = Prices(core_price, memory_price, put_price, get_price)
    output.result(size_document(load, prices), "\n".join(_lines(size_of(load, prices))))


def size_document(load: Load, prices: Prices) -> dict[str, Any]:
    """Returns the JSON of the command."""
    return {**asdict(size_of(load, prices)), "load": asdict(load), "prices": asdict(prices)}


def _lines(size: Size) -> Iterator[str]:
    yield f"cores     {size.cores}, of which the load takes {size.load_cores:.2f}"
    yield f"memory    {size.memory_mb / 1000:.1f} GB for the driver and its workers"
    yield f"catch-up  {size.catch_up_records_per_s:,} records per second besides the load"
    yield f"commits   {size.commits_per_day:,} a day"
    yield f"requests  {size.puts_per_day:,} that write and {size.gets_per_day:,} that read, a day"
    parts = f"compute {size.compute_per_month:,.2f}, requests {size.requests_per_month:,.2f}"
    yield f"price     {size.price_per_month:,.2f} a month: {parts}"
