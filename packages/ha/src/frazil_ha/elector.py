"""The port of elections: a register that holds the newest claim to lead, and who of the claimants still shows life.

An elector gives order (a claim replaces exactly the claim that its claimant knew) and is slow to notice a death. The link
between the processes (`link.py`) notices it at once, and is never believed without a claim.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Protocol


@dataclass(frozen=True)
class Claim:
    """A process's claim to lead. The newest one leads."""

    #: The name of the process.
    name: str
    #: Where the process listens for the others: host and port.
    address: str
    #: What a process must know to be let in there; a new one for each claim.
    key: str
    #: When it was made, in milliseconds since 1970.
    since_ms: int
    #: `start`: there was no leader; `released`: the last one stood down; `lost`: it has ended; `forced`: it was silent.
    cause: str
    #: Grows from claim to claim; given by the elector.
    number: int = 0
    #: Some tables of the claimant's pipeline file, each with its catalog: two pipelines of one name have none in common.
    tables: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns the claim as JSON, without its number."""
        return json.dumps({name: held for name, held in asdict(self).items() if name != "number"}, sort_keys=True)


_FIELDS = frozenset(field.name for field in fields(Claim))


def read_claim(text: str | bytes, number: int) -> Claim:
    """Returns the claim that `text` spells, without what a newer version has added. Raises ValueError for another text."""
    try:
        claim = Claim(**{name: held for name, held in dict(json.loads(text)).items() if name in _FIELDS})
        return replace(claim, number=number, tables=tuple(claim.tables))
    except TypeError as error:
        raise ValueError(str(error)) from None


class Elector(Protocol):
    """The port. One thread calls it. Every method but `close` raises UnavailableError where the service does not answer, and
    SpecError where it refuses this pipeline for good.
    """

    #: The word in the pipeline file.
    kind: str
    #: How often `newest` is to be called, in seconds.
    poll_s: float

    def check(self) -> str:
        """Returns, for people, how far the register is ready and this client may use it. Changes nothing."""

    def prepare(self) -> None:
        """Opens the register; makes it where it does not exist. Calling it again does no harm."""

    def newest(self) -> Claim | None:
        """Returns the newest claim. Also shows the others that this process lives."""

    def claim(self, mine: Claim, after: Claim | None) -> bool:
        """Writes `mine`, unless the newest claim is another one than `after`. Returns whether it was written."""

    def is_present(self, claim: Claim) -> bool:
        """Whether the claimant still shows life: after its death for some seconds yet."""

    def close(self) -> None:
        """Leaves; the others see it at once where the service answers."""
