"""What `frazil check` finds of the stores of tables and the database of a catalog, and of the settings of their clients."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from frazil.catalog.port import TableState
from frazil.errors import SpecError, UnavailableError
from frazil.ops.check import Finding, check_local_folder, failed
from frazil.runtime.gateway import hadoop_settings
from frazil.spec import PipelineSpec
from frazil.spec.catalog_properties import unknown_properties
from frazil.store.addresses import address_of
from frazil.store.file_io import store_of
from frazil.store.properties import HDFS, OBJECT_STORES_OF_HADOOP, hadoop_setting_of, task_properties

Probe = Callable[[Mapping[str, str], str], str]
"""Reaches a store: takes properties and location, returns a description of the result."""
# Of other stores no write changes nothing.
_WRITTEN_TO = ("s3:", "s3a:", "s3n:", "hdfs:")
_VENDING = "header.x-iceberg-access-delegation"
_JDBC = "jdbc."
# Of Iceberg's catalog, which passes all others on to the driver.
_OF_CATALOG = ("jdbc.schema-version", "jdbc.init-catalog-tables", "jdbc.strict-mode", "jdbc.user", "jdbc.password")
_PREFIXES = {"s3": "s3.", "gcs": "gcs.", "adls": "adls.", "oss": "oss."}


def check_store(
    warehouse: str | None, properties: Mapping[str, str], states: list[TableState], probe: Probe
) -> Finding:
    """Checks the store of an existing table, or the warehouse."""
    state = states[0] if states else None
    location = state.location if state is not None else warehouse or ""
    if location.startswith(("/", "file:")):
        return check_local_folder("store", Path(location.removeprefix("file:")))
    if "://" not in location:
        outcome = (
            "not tried: the catalog chooses the place of the first table, and credentials are tried there from then on"
        )
        return Finding("store", True, "nothing yet", outcome)
    tried = f"listed {location}"
    if state is None and any(name.lower() == _VENDING for name in properties):
        return Finding("store", True, "nothing yet", "the catalog gives access to it with the first table")
    chosen = state.io_properties if state is not None else properties
    try:
        store_of(tuple(sorted(task_properties(chosen).items()))).check(location)
        if location.startswith(_WRITTEN_TO):
            tried = f"{tried}, and tried to write there"
        outcome = probe(chosen, location)
    except (SpecError, UnavailableError) as error:
        return failed("store", tried, error)
    return Finding("store", True, tried, f"{location}: {outcome}")


def check_store_properties(spec: PipelineSpec, states: list[TableState]) -> Iterator[Finding]:
    """Yields a finding for properties of the pipeline file that are those of another store than the tables'. states: of
    existing tables. Nothing is found where a catalog alone knows where tables are.
    """
    named = [spec.catalog.warehouse, *(table.layout.location for table in spec.tables)]
    tables = [*(table.layout.properties for table in spec.tables), *(state.properties for state in states)]
    own = [properties.get("write.data.path") for properties in tables]
    places = {
        place
        for place in (*named, *own, *(state.location for state in states))
        if place and ("://" in place or place.startswith("/"))
    }
    kinds = set()
    for place in places:
        try:
            kinds.add(address_of(place).kind)
        except SpecError:
            return  # Another check names it.
    read = {address_of(file).kind for file in spec.lookup_files}
    others = tuple(prefix for kind, prefix in _PREFIXES.items() if kind not in kinds | read)
    foreign = sorted(name for name in spec.catalog.properties if name.startswith(others))
    if kinds and foreign:
        mismatch = f"mind: no table is in the store of {', '.join(foreign)}"
        remedy = "write the properties of the store that `catalog.warehouse` names"
        tried = f"compared `catalog.properties` with {', '.join(sorted(places))}"
        yield Finding("settings of store", True, tried, f"{mismatch}; {remedy}")


def check_catalog_settings(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields a finding for properties of the catalog that Iceberg may ignore, and that tasks do not follow."""
    tried = "compared `catalog.properties` with what Iceberg reads"
    for words in unknown_properties(spec.catalog.properties, spec.catalog.impl):
        yield Finding("settings of catalog", True, tried, f"mind: {words}")


def check_driver_settings(spec: PipelineSpec, listed: Mapping[str, Sequence[str]]) -> Iterator[Finding]:
    """Yields a finding for each property that the driver of the catalog's database does not list, and for each value that
    it does not: drivers ignore both. listed: the driver's properties, with the values of those that have a list of them.
    """
    tried = f"compared `{_JDBC}` under `catalog.properties` with what the database's driver lists"
    for name, value in sorted(spec.catalog.properties.items()):
        own = name.removeprefix(_JDBC)
        if not listed or not name.startswith(_JDBC) or name in _OF_CATALOG:
            continue
        taken = [text.strip("'") for text in listed.get(own, ())]
        if own not in listed:
            names = (*listed, *(setting.removeprefix(_JDBC) for setting in _OF_CATALOG))
            near = difflib.get_close_matches(own, names, n=1, cutoff=0.7)
            advice = f"did you mean `{_JDBC}{near[0]}`?" if near else "remove it"
            yield Finding("settings of database", True, tried, f"mind: the driver lists no `{name}`; {advice}")
        elif taken and value.lower() not in map(str.lower, taken):
            mismatch = f"mind: `{name}` is `{value}`, and the driver lists {', '.join(dict.fromkeys(taken))}"
            yield Finding("settings of database", True, tried, f"{mismatch}; write one of them")


def check_hadoop_settings(spec: PipelineSpec) -> Iterator[Finding]:
    """Yields a finding for settings of Hadoop's in the pipeline file that reach no table, or no task."""
    written = hadoop_settings(spec.spark.conf)
    tried = "compared `spark.hadoop.` under `spark.conf` with what clients of stores read"
    foreign = sorted(name for name in written if name.startswith(OBJECT_STORES_OF_HADOOP))
    if foreign:
        mismatch = f"mind: {', '.join(foreign)} reach no table, which Iceberg's own clients read and write"
        remedy = "write Iceberg's properties of the store under `catalog.properties`"
        yield Finding("settings of hadoop", True, tried, f"{mismatch}; {remedy}")
    for name in sorted(written):
        if name.startswith("dfs.") and hadoop_setting_of(name) is None:
            near = difflib.get_close_matches(name, [setting.name for setting in HDFS], n=1, cutoff=0.8)
            advice = f"did you mean `{near[0]}`?" if near else "keep it where the driver needs it, or remove it"
            yield Finding(
                "settings of hadoop", True, tried, f"mind: the tasks that write files get no {name}; {advice}"
            )
