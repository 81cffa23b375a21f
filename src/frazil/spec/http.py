"""The section `http` of the pipeline file, and what an address that other machines reach needs."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from frazil.spec.connections import HttpSpec, HttpTlsSpec, HttpTokensSpec
from frazil.spec.document import Entry, Items, Scalar
from frazil.spec.keys import Fields, Read, keys_of, read_text
from frazil.spec.problems import Problems
from frazil.spec.secrets import Secrets

SHORTEST_TOKEN = 32
"""The fewest characters of a token."""


def read_http(entry: Entry | None, secrets: Secrets, problems: Problems) -> HttpSpec | None:
    """The HTTP service; None where the file switches it off."""
    if entry is None:
        return HttpSpec()
    if isinstance(entry.value, Scalar) and entry.value.kind == "boolean":
        return HttpSpec() if entry.value.text.lower() in ("true", "yes", "on") else None
    fields = Fields(entry.value, keys_of(HttpSpec), "http", problems, secrets=secrets)
    readers: dict[str, Read] = {"tokens": partial(_read_tokens, secrets=secrets), "tls": _read_tls}
    http = HttpSpec(**fields.values(readers), is_declared=fields.get("listen") is not None)
    _check_reach(fields, http)
    return http


def _check_reach(fields: Fields, http: HttpSpec) -> None:
    if http.listen.is_loopback:
        return
    place = f"`http.listen: {http.listen}` can be reached from other machines"
    if not fields.get("tokens"):
        remedy = 'write `http.tokens: {operate: "${file:PATH}"}`, or listen on 127.0.0.1'
        fields.refuse_key("listen", f"{place}, and `http.tokens` is missing", remedy)
    if not fields.get("tls"):
        remedy = "write `http.tls: {certificate: PATH, key: PATH}`, or listen on 127.0.0.1"
        fields.refuse_key("listen", f"{place}, and `http.tls` is missing", remedy)


def _read_tokens(http: Fields, key: str, secrets: Secrets) -> HttpTokensSpec:
    fields = http.section(key, HttpTokensSpec)
    tokens = HttpTokensSpec(
        **fields.values(dict.fromkeys(keys_of(HttpTokensSpec), partial(_read_token, secrets=secrets)))
    )
    if not (fields.get("read") or fields.get("operate")):
        http.refuse_key(key, "`http.tokens` has no token", "write a token under `read` or `operate`")
    return tokens


def _read_token(fields: Fields, key: str, secrets: Secrets) -> tuple[str, ...]:
    node, label, found = fields.node(key), fields.path(key), list[str]()
    nodes = node.items if isinstance(node, Items) else (node,)
    if not nodes:
        fields.refuse_key(key, f"`{label}` is an empty list", "write at least one token, or remove it")
    for one in nodes:
        text = read_text(one, label, fields.problems)
        token = fields.problems.attempt(one.line, None, secrets.resolve, text, "token") if text else None
        if token is None:
            continue
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            remedy = f"use at least {SHORTEST_TOKEN} letters, digits and signs, such as those of `openssl rand -hex 32`"
            fields.problems.add(
                one.line, f"a token of `{label}` is too short, or has a space or another character", remedy
            )
        found.append(token)
    return tuple(found)


def _read_tls(http: Fields, key: str) -> HttpTlsSpec:
    fields = http.section(key, HttpTlsSpec)
    for name in keys_of(HttpTlsSpec):
        if not fields.get(name):
            fields.problems.add(
                http.node(key).line, f"`http.tls.{name}` is missing", "write the path of its file (PEM)"
            )
    paths = {name: str(Path.cwd() / text) for name, text in fields.values().items()}
    return HttpTlsSpec(**{**dict.fromkeys(keys_of(HttpTlsSpec), ""), **paths})
