"""What a task counts and notes of one table for its report: numbers, bad records, requests for the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from frazil.decode.columns import Decoded, Fate, value_sizes
from frazil.report import MOST_BAD, BadRecords, Counts, FindingReport, SchemaRequests, ShareReport
from frazil.schema.arrow import Bools, Ints, Records
from frazil.schema.evolve import dump_requested_fields
from frazil.schema.parts import Path
from frazil.stages.findings import Finding
from frazil.types import BadRecord, add_names
from frazil.write.digests import digest_of, record_hashes, row_hashes


@dataclass
class Tally:
    """The numbers of one table so far; each read of records adds to them."""

    #: Numbers and sizes of the records.
    counts: Counts = field(default_factory=Counts)
    #: Schema requests.
    requests: SchemaRequests = field(default_factory=SchemaRequests)
    #: Bad records.
    bad: BadRecords = field(default_factory=BadRecords)
    #: The records of other tables, of a table with a share.
    share: ShareReport = field(default_factory=ShareReport)
    #: What stages have found.
    findings: FindingReport = field(default_factory=FindingReport)

    @property
    def must_read_again(self) -> bool:
        """Whether the records must be read once more, with another schema or in another batch."""
        asked = self.requests
        needs = asked.requested_fields or asked.made_optional or asked.missing or asked.key_columns
        return bool(needs or self.share.new_values)

    def count(self, topic: str, columns: Records, ignored: Mapping[str, int]) -> None:
        """Counts records of a topic. ignored: the number of those that make no row and are no bad records, by kind."""
        values = columns["value"]
        counts = Counts(len(values), latest_ms={topic: latest_of(columns)}, ignored_records=ignored)
        if len(values):
            digest = digest_of(record_hashes(topic, columns)) if "offset" in columns else 0
            counts = replace(counts, value_bytes=int(value_sizes(values).sum()), record_digest=digest)
        self.counts = Counts.merge([self.counts, counts])

    def note_decoded(self, topic: str, columns: Records, decoded: Decoded) -> None:
        """Notes what became of records that were decoded: the refused ones, and the fields of all."""
        self.note_bad(topic, columns, decoded)
        if decoded.fates is not None:
            self.count_fields(decoded.fates, decoded.refused)

    def count_fields(self, fates: NDArray[np.int32], refused: Bools) -> None:
        """Counts the fields of records. fates: as of `Decoded`. refused: which of the records are bad."""
        good = fates[:, ~refused] if refused.any() else fates
        read = int(fates[Fate.READ].sum(dtype=np.int64))
        sums = dict(zip((fate.name.lower() for fate in Fate), good.sum(axis=1, dtype=np.int64).tolist(), strict=True))
        fields = {**sums, "read": read, "bad": read - sums["read"]}
        self.counts = Counts.merge([self.counts, Counts(fields={name: n for name, n in fields.items() if n})])

    def count_written(self, record_count: int, row_count: int) -> None:
        """Counts records that were written, and the rows or changes that they became."""
        self.counts = Counts.merge([self.counts, Counts(written_count=record_count, row_count=row_count)])

    def count_again(self, record_count: int) -> None:
        """Counts records, among those that were counted, that earlier batches have counted too."""
        self.counts = Counts.merge([self.counts, Counts(again_count=record_count)])

    def digest_rows(self, rows: pa.Table) -> None:
        """Adds the digest of rows that are appended."""
        self.counts = Counts.merge([self.counts, Counts(row_digest=digest_of(row_hashes(rows)))])

    def count_rows(
        self,
        value_bytes: Ints,
        latest: Mapping[str, Mapping[int, int]],
        is_writing: bool,
        fates: NDArray[np.int32] | None = None,
        record_digest: int = 0,
    ) -> None:
        """Counts records whose rows are made together with those of other tables. value_bytes: of each record. latest: the
        timestamps up to which those of all tables were read. is_writing: whether the rows are written. fates: of their
        fields (see `Decoded`). record_digest: of the records.
        """
        if fates is not None:
            self.count_fields(fates, np.zeros(fates.shape[1], np.bool_))
        counted = Counts(latest_ms=latest)
        if value_bytes.size:
            counted = Counts(value_bytes.size, int(value_bytes.sum()), latest_ms=latest, record_digest=record_digest)
            if is_writing:
                counted = replace(counted, written_count=value_bytes.size, row_count=value_bytes.size)
        self.counts = Counts.merge([self.counts, counted])

    def note_share(self, report: ShareReport, missing: frozenset[str]) -> None:
        """Notes records of other tables. missing: ids of schemas without which their table is unknown."""
        self.share = ShareReport.merge([self.share, report])
        if missing:
            self.requests = SchemaRequests.merge([self.requests, SchemaRequests(missing=missing)])

    def note_key_columns(self, names: tuple[str, ...]) -> None:
        """Notes the fields of the records' keys, for an upsert table whose key columns are not known yet."""
        self.requests = SchemaRequests.merge([self.requests, SchemaRequests(key_columns=names)])

    def note_bad(self, topic: str, columns: Records, decoded: Decoded) -> None:
        """Notes the records that were refused."""
        if not decoded.mismatch_count:
            return
        first = []
        for mismatch in decoded.mismatches[:MOST_BAD]:
            offset = columns["offset"][mismatch.row].as_py() if "offset" in columns else -1
            partition = columns["partition"][mismatch.row].as_py()
            first.append(BadRecord(topic, partition, offset, mismatch.kind, mismatch.path, mismatch.reason))
        classes: Counter[str] = Counter({mismatch.row: mismatch.kind for mismatch in decoded.mismatches}.values())
        self.bad = BadRecords.merge([self.bad, BadRecords(tuple(first), decoded.mismatch_count, classes)])

    def note_unread(self, named: Sequence[BadRecord]) -> None:
        """Notes records that are not read because they crash the task which reads them."""
        classes: Counter[str] = Counter(record.kind for record in named)
        self.bad = BadRecords.merge([self.bad, BadRecords(tuple(named), len(named), classes)])

    def note_findings(self, topic: str, columns: Records, findings: Sequence[Finding]) -> None:
        """Notes what stages have found, each with its first record."""
        for finding in findings:
            name, (row, reason) = finding.name, next(iter(finding.reasons.items()))
            partition, offset = columns["partition"][row].as_py(), columns["offset"][row].as_py()
            first = BadRecord(topic, partition, offset, finding.error_class, "", reason)
            report = FindingReport({name: int(np.count_nonzero(finding.records))}, {name: first})
            self.findings = FindingReport.merge([self.findings, report])

    def note_requests(self, decoded: Decoded, fixed: frozenset[Path], empty_ids: frozenset[str] = frozenset()) -> None:
        """Notes what the records request of the schema. fixed: paths of columns that stay required. empty_ids: see
        SchemaRequests.
        """
        before = self.requests
        requests = SchemaRequests(
            (dump_requested_fields(decoded.requested_fields),) if decoded.requested_fields else (),
            frozenset(json.dumps(path) for path in decoded.made_optional - fixed),
            missing=frozenset(decoded.missing),
            empty_ids=empty_ids,
        )
        refusals, dropped = add_names(before.refusals, decoded.refusals), add_names(before.dropped, decoded.dropped)
        self.requests = replace(SchemaRequests.merge([before, requests]), refusals=refusals, dropped=dropped)


def latest_of(columns: Records) -> dict[int, int]:
    """Returns the latest record timestamp of each partition, in milliseconds since the epoch; none of a partition whose
    records have no timestamps.
    """
    partitions, times_us = np.asarray(columns["partition"]), columns["timestamp"].cast(pa.int64())
    if times_us.null_count:
        has_time = np.asarray(times_us.is_valid())
        partitions, times_us = partitions[has_time], times_us.drop_null()
    times = np.asarray(times_us) // 1000
    starts = np.flatnonzero(np.r_[True, partitions[1:] != partitions[:-1]]) if partitions.size else np.empty(0, int)
    latest: dict[int, int] = {}
    for start, most in zip(starts.tolist(), np.maximum.reduceat(times, starts) if starts.size else [], strict=True):
        partition = int(partitions[start])
        latest[partition] = max(int(most), latest.get(partition, int(most)))
    return latest
