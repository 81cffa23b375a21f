"""An election in memory: the twin of the port for tests."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace

from frazil.errors import UnavailableError
from frazil_ha.elector import Claim


@dataclass
class MemoryRegister:
    """What all processes of a test share."""

    newest: Claim | None = None
    present: set[str] = field(default_factory=set)
    #: Whether nothing is answered.
    is_away: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class MemoryElector:
    """Implements the port `Elector`. name: this process's."""

    kind = "memory"
    poll_s = 0.05

    def __init__(self, register: MemoryRegister, name: str) -> None:
        self._register = register
        self._name = name

    def check(self) -> str:
        self._asked()
        return "a register in memory"

    def prepare(self) -> None:
        self._asked().present.add(self._name)

    def newest(self) -> Claim | None:
        return self._asked().newest

    def claim(self, mine: Claim, after: Claim | None) -> bool:
        register = self._asked()
        with register.lock:
            if register.newest != after:
                return False
            register.newest = replace(mine, number=1 + (after.number if after is not None else 0))
            return True

    def is_present(self, claim: Claim) -> bool:
        return claim.name in self._asked().present

    def close(self) -> None:
        self._register.present.discard(self._name)

    def _asked(self) -> MemoryRegister:
        if self._register.is_away:
            raise UnavailableError("the register does not answer")
        return self._register
