"""What a process records of itself in the state file, read key by key.

The file may be one of another version, or have been edited by hand: a key that is not there, or has a value of another
type, is not known, and the other keys are.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator
from pydantic.functional_validators import ModelWrapValidatorHandler

_Time = Annotated[int, Field(ge=-(2**63), lt=2**63)]
_Count = Annotated[int, Field(ge=0, lt=2**63)]
_Number = Annotated[float, Field(ge=0, allow_inf_nan=False)]
_Counts = dict[str, _Count]


class _Recorded(BaseModel):
    """Keys, each with its value where nothing is known."""

    model_config = ConfigDict(strict=True)

    @field_validator("*", mode="wrap")
    @classmethod
    def _known(cls, value: Any, validate: ModelWrapValidatorHandler[Any], key: ValidationInfo) -> Any:
        try:
            return validate(value)
        except ValidationError:
            return cls.model_fields[str(key.field_name)].get_default(call_default_factory=True)


class RecordedMaintenance(_Recorded):
    """As MaintenanceScheduler.status."""

    last_ms: _Time | None = None
    waiting: list[str] = []
    above_cap: list[str] = []
    failure: str = ""
    slowed_by: _Number = 1.0


class RecordedVerification(_Recorded):
    """As VerificationReport."""

    last_ms: _Time | None = None
    commits: _Count = 0
    records: _Count = 0
    missing: _Count = 0
    surplus: _Count = 0
    is_equal: bool | None = None
    reason: str = ""


class RecordedRange(_Recorded):
    """As OffsetRange."""

    topic: str = ""
    partition: _Count = 0
    start: _Count = 0
    end: _Count = 0


class RecordedTable(_Recorded):
    """As `frazil.ops.state_file.describe`, with what works beside the loop."""

    state: str = "waiting"
    reason: str = ""
    remedy: str = ""
    where: str = ""
    topics: list[str] = []
    lag_records: _Count | None = None
    open_transactions: list[RecordedRange] = []
    behind_since_ms: _Time | None = None
    freshness_ms: _Time | None = None
    records_per_s: _Number = 0.0
    committed: bool | None = None
    watermark_ms: _Time | None = None
    last_commit_ms: _Time | None = None
    dropped_fields: list[str] = []
    dead_letters: _Count | None = None
    bad_skipped: _Count | None = None
    skipped_offsets: _Count | None = None
    ignored_records: _Counts | None = None
    expectations: _Counts | None = None
    rest_records: _Counts | None = None
    refused_changes: list[str] = []
    size: _Counts | None = None
    last_upsert: _Counts | None = None
    maintenance: RecordedMaintenance | None = None
    verification: RecordedVerification | None = None


class RecordedMember(_Recorded):
    """As Member."""

    name: str = ""
    version: str = ""
    started_at_ms: _Time | None = None
    warm: bool = False


class RecordedLeadership(_Recorded):
    """As LeadershipState."""

    elect: str = "none"
    mode: str = ""
    name: str = ""
    members: list[RecordedMember] = []
    leader: str | None = None
    since_ms: _Time | None = None
    reason: str = ""
    owners: dict[str, str] | None = None


class RecordedOffsets(_Recorded):
    """As Published."""

    group: str = ""
    last_ms: _Time | None = None
    failure: str = ""


class RecordedProcess(_Recorded):
    """The document."""

    pid: Annotated[int, Field(gt=0, lt=2**31)] | None = None
    host: str = ""
    started: str | None = None
    catalog: str = ""
    ended: bool = False
    updated_ms: _Time | None = None
    leadership: RecordedLeadership | None = None
    published_offsets: RecordedOffsets | None = None
    tables: dict[str, RecordedTable] = {}
