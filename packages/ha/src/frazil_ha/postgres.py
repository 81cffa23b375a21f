"""Elections by PostgreSQL: claims are a row of the table `frazil_leader`, life is shown by an advisory lock of the session.

The lock is lost with the connection, so the database must be reached without a pooler that shares connections.
"""

from __future__ import annotations

import hashlib
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pg8000.native

from frazil.errors import SpecError, UnavailableError
from frazil_ha.elector import Claim, read_claim

_TIMEOUT_S = 5
_TABLE = "frazil_leader"
_SESSION = (
    # The server notices within five seconds that this machine is gone.
    "set tcp_keepalives_idle = 2",
    "set tcp_keepalives_interval = 1",
    "set tcp_keepalives_count = 3",
    "set tcp_user_timeout = 5000",
)
_NO_RIGHT, _NO_LOGIN = "42501", ("28000", "28P01", "3D000")


class PostgresElector:
    """Implements the port `Elector`. uri: postgresql://USER:PASSWORD@HOST:PORT/DATABASE. name: this process's."""

    kind = "postgres"
    poll_s = 0.2

    def __init__(self, uri: str, pipeline: str, name: str) -> None:
        self._uri = urlsplit(uri)
        self._pipeline = pipeline
        self._name = name
        self._where = f"{self._uri.hostname}:{self._uri.port or 5432}"
        self._connection: pg8000.native.Connection | None = None

    def check(self) -> str:
        with self._failures(), closing(self._connect()) as connection:
            if connection.run("select to_regclass(:table)", table=_TABLE) == [[None]]:
                if connection.run("select has_schema_privilege(current_schema(), 'create')") != [[True]]:
                    raise _refused("the table does not exist, and this user may not create it", self._where)
                return f"table {_TABLE} does not exist; this user may create it"
            for right in ("select", "insert", "update"):
                if connection.run("select has_table_privilege(:table, :right)", table=_TABLE, right=right) != [[True]]:
                    raise _refused(f"this user has no right to {right}", self._where)
        return f"table {_TABLE}, which this user may read and write"

    def prepare(self) -> None:
        if self._connection is not None:
            return
        with self._failures():
            self._connection = connection = self._connect()
            for statement in _SESSION:
                connection.run(statement)
            if connection.run("select to_regclass(:table)", table=_TABLE) == [[None]]:
                columns = "pipeline text primary key, number bigint not null, claim text not null"
                connection.run(f"create table if not exists {_TABLE} ({columns})")
            connection.run("select pg_advisory_lock(:lock)", lock=_lock_of(self._name))

    def _connect(self) -> pg8000.native.Connection:
        return pg8000.native.Connection(
            unquote(self._uri.username or "postgres"),
            host=self._uri.hostname,
            port=self._uri.port or 5432,
            database=self._uri.path.lstrip("/") or None,
            password=unquote(self._uri.password) if self._uri.password else None,
            timeout=_TIMEOUT_S,
            ssl_context=_tls(parse_qs(self._uri.query).get("sslmode", ["disable"])[0]),
            application_name=f"frazil {self._pipeline}"[:63],
        )

    def newest(self) -> Claim | None:
        rows = self._run(f"select claim, number from {_TABLE} where pipeline = :pipeline", pipeline=self._pipeline)
        try:
            return read_claim(*rows[0]) if rows else None
        except ValueError:
            message, remedy = "the database has a row that is not a claim", "delete the row; a leader claims again"
            raise UnavailableError(message, remedy=remedy, where=f"table {_TABLE}") from None

    def claim(self, mine: Claim, after: Claim | None) -> bool:
        words = {"pipeline": self._pipeline, "claim": mine.text()}
        if after is None:
            statement = f"insert into {_TABLE} values (:pipeline, 1, :claim) on conflict do nothing returning 1"
            return bool(self._run(statement, **words))
        statement = f"update {_TABLE} set number = number + 1, claim = :claim"
        condition = "where pipeline = :pipeline and number = :number returning 1"
        return bool(self._run(f"{statement} {condition}", number=after.number, **words))

    def is_present(self, claim: Claim) -> bool:
        lock = _lock_of(claim.name) % (1 << 64)
        locks = self._run(
            "select 1 from pg_locks where locktype = 'advisory' and objsubid = 1 and granted"
            " and classid = cast(:high as oid) and objid = cast(:low as oid)",
            high=lock >> 32,
            low=lock % (1 << 32),
        )
        return bool(locks)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(Exception):
                connection.close()

    def _run(self, statement: str, **words: object) -> list[list[Any]]:
        with self._failures():
            assert self._connection is not None
            rows: list[list[Any]] | None = self._connection.run(statement, **words)
            return rows or []

    @contextmanager
    def _failures(self) -> Iterator[None]:
        """After any error the session is ended, and with it its lock; `prepare` opens another one."""
        where = self._where
        try:
            yield
        except pg8000.native.DatabaseError as error:
            self.close()
            fields = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
            words = str(fields.get("M", error))
            if fields.get("C") == _NO_RIGHT:
                raise _refused(words, where) from None
            if fields.get("C") in _NO_LOGIN:
                raise SpecError(f"the database refuses: {words}", remedy="correct `ha.uri`", where=where) from None
            raise _away(words, where) from None
        except (pg8000.native.InterfaceError, OSError) as error:
            self.close()
            raise _away(str(error), where) from None


def _refused(words: str, where: str) -> SpecError:
    remedy = f"let an administrator create the table {_TABLE}, and grant select, insert, update on it"
    return SpecError(f"the database refuses an election: {words}", remedy=remedy, where=where)


def _away(words: str, where: str) -> UnavailableError:
    remedy = "Frazil retries; look at the database of `ha.uri`"
    return UnavailableError(f"PostgreSQL cannot elect a leader: {words}", remedy=remedy, where=where)


def _lock_of(name: str) -> int:
    """Returns the advisory lock of a process: a bigint."""
    return int.from_bytes(hashlib.sha256(f"frazil {name}".encode()).digest()[:8], "big", signed=True)


def _tls(mode: str) -> ssl.SSLContext | bool:
    """Returns what pg8000 takes for libpq's `sslmode`."""
    if mode in ("disable", "allow", "prefer"):
        return False
    context = ssl.create_default_context()
    if mode == "require":
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
