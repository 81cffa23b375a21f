"""`frazil pause`, `resume`, `reset` and `stand-down`: act on a running pipeline, through its HTTP service."""

from __future__ import annotations

import http.client
import json
import ssl
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated, Any
from urllib.parse import quote, urlencode

import typer

from frazil.api.wiring import read_spec
from frazil.cli.output import DEFAULT_FILE, Output, SpecFile
from frazil.errors import ConflictError, FrazilError, UnavailableError
from frazil.ops.reports import behind
from frazil.printable import plural
from frazil.spec import PipelineSpec
from frazil.spec.connections import HttpSpec
from frazil_http.certificate import RENEW

TableName = Annotated[str, typer.Argument(metavar="TABLE", help="The table, such as shop.orders.", show_default=False)]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this option the command only shows what it would do.")]
NOT_DONE = 1
_TIMEOUT_S = 90.0
_EVERY_ANSWER = {"pipeline", "state", "dry_run", "message"}
"""Keys of which every answer has one: that of the process, of a table, of a reset, of an error."""
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def pause(output: Output, table: TableName, file: SpecFile = DEFAULT_FILE) -> None:
    """Pause one table of the running pipeline. A batch in flight is committed; no other begins until `frazil resume`, or
    until the process is started again. Other tables, and table maintenance, continue.

    Exit code: 0 when it is paused; 1 when no process answers, or the pipeline has no such table; 2 when the pipeline file is
    wrong.
    """
    answer = _call(read_spec(output, file), "POST", table, "pause")
    output.result(answer, f"{table} is paused; {behind(answer['lag_records'])}")


def resume(output: Output, table: TableName, file: SpecFile = DEFAULT_FILE) -> None:
    """Continue one table of the running pipeline that is paused or stopped, from its progress in the table. A stopped table
    stops again while the cause remains.

    Exit code: 0 when it continues; 1 when no process answers, or the pipeline has no such table; 2 when the pipeline file is
    wrong.
    """
    answer = _call(read_spec(output, file), "POST", table, "resume")
    output.result(answer, f"{table} continues; {behind(answer['lag_records'])}")


def reset(output: Output, table: TableName, file: SpecFile = DEFAULT_FILE, yes: Yes = False) -> int:
    """Make one table of the running pipeline begin again at its setting `start`. Its rows stay: with `mode: append` records
    that are read again become rows again, with `mode: upsert` they replace their rows.

    The table must be paused or stopped. Without --yes the command only shows how many offsets would be read again.

    Exit code: 0 when it is done; 1 without --yes, when no process answers, or when the table cannot begin again; 2
    when the pipeline file is wrong.
    """
    answer = _call(read_spec(output, file), "POST", table, "reset", dry_run=json.dumps(not yes))
    done = not answer["dry_run"]
    again, unread = plural(answer["read_again"], "offset"), plural(answer["left_unread"], "offset")
    effect = "its records become rows a second time" if answer["mode"] == "append" else "its records replace their rows"
    lines = [f"{table} {'begins' if done else 'would begin'} again at `start`: {again} to be read again; {effect}"]
    if answer["left_unread"]:
        lines.append(f"{unread} that {'were' if done else 'are'} not read yet {'are' if done else 'would be'} left out")
    lines.append(f"run `frazil resume {table}` next" if done else "nothing was changed; add --yes to do it")
    output.result(answer, "\n".join(lines))
    return 0 if yes else NOT_DONE


def stand_down(output: Output, file: SpecFile = DEFAULT_FILE) -> None:
    """Let another process of the pipeline take over all tables of the process that answers at `http.listen`. Batches in
    flight are committed first; the process becomes a standby.

    Exit code: 0 when it has released its tables; 1 when no process answers, stands by, or could take over; 2 when the
    pipeline file is wrong.
    """
    answer = _ask(_address(read_spec(output, file)), "POST", "/api/v1/stand-down")
    output.result(answer, f"{answer['leadership']['name']} has released its tables")


def _call(spec: PipelineSpec, method: str, table: str, command: str, **parameters: str) -> dict[str, Any]:
    """Returns the answer of the process that runs the pipeline.

    Raises: ConflictError where it refuses the request; UnavailableError where no process of this pipeline answers.
    """
    query = f"?{urlencode(parameters)}" if parameters else ""
    return _ask(_address(spec), method, f"/api/v1/tables/{quote(table, safe='')}/{command}{query}")


def _address(spec: PipelineSpec) -> HttpSpec:
    """Returns where the process of this pipeline answers.

    Raises: UnavailableError where no process of this pipeline answers.
    """
    if spec.process.http is None:
        remedy = "remove `http: false`, and start the pipeline again"
        raise UnavailableError("`http` is false: the running pipeline takes no commands", remedy=remedy)
    name = _ask(spec.process.http, "GET", "/api/v1/pipeline")["pipeline"]
    if name != spec.pipeline:
        raise UnavailableError(
            f"the process at {spec.process.http.listen} runs another pipeline: `{name}`",
            remedy="give each pipeline an address of its own: `http: {listen: …}`",
            where=str(spec.process.http.listen),
        )
    return spec.process.http


def _ask(spec: HttpSpec, method: str, path: str) -> dict[str, Any]:
    connection = _connect(spec)
    token = next(iter((*spec.tokens.operate, *spec.tokens.read)), None)
    headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        text = answer.read()
    except ssl.SSLCertVerificationError as error:
        raise UnavailableError(
            f"the certificate of the pipeline at {spec.listen} is refused: {error.verify_message}",
            remedy=RENEW,
            where=str(spec.listen),
        ) from None
    except (OSError, http.client.HTTPException) as error:
        raise UnavailableError(
            f"no running pipeline answers at {spec.listen}: {error}",
            remedy="start `frazil run`, on this machine and with this pipeline file",
            where=str(spec.listen),
        ) from None
    finally:
        connection.close()
    parsed = _parsed(text, spec)
    if answer.status >= HTTPStatus.BAD_REQUEST:
        # The pipeline has refused the request, or the service does not answer it.
        is_refused = answer.status < HTTPStatus.INTERNAL_SERVER_ERROR
        kind: type[FrazilError] = ConflictError if is_refused else UnavailableError
        raise kind(
            parsed.get("message", "the request failed"), remedy=parsed.get("remedy", ""), where=parsed.get("where", "")
        )
    return parsed


def _parsed(text: bytes, spec: HttpSpec) -> dict[str, Any]:
    """Returns the JSON of an answer. Raises: UnavailableError where it is not that of a pipeline."""
    with suppress(ValueError):
        parsed: Any = json.loads(text)
        if isinstance(parsed, dict) and _EVERY_ANSWER & parsed.keys():
            return parsed
    raise UnavailableError(
        f"another program answers at {spec.listen}",
        remedy="end the other process, or write another address under `http.listen`",
        where=str(spec.listen),
    )


def _connect(spec: HttpSpec) -> http.client.HTTPConnection:
    host = _ANYWHERE.get(spec.listen.host, spec.listen.host)
    if spec.tls is None:
        return http.client.HTTPConnection(host, spec.listen.port, timeout=_TIMEOUT_S)
    # The certificate is that of the pipeline file itself, whatever name it has.
    context = ssl.create_default_context(cafile=spec.tls.certificate)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return http.client.HTTPSConnection(host, spec.listen.port, timeout=_TIMEOUT_S, context=context)
