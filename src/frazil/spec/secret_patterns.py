"""How secrets that are written literally are recognised: by the name of their key, and by their form inside a value.

One list for everything: the pipeline file, what a catalog hands out, and what Spark leaves out of its plans.
"""

from __future__ import annotations

import re
import urllib.parse
from collections.abc import Iterator

_WORDS = (
    "password", "passwd", "passphrase", "passcode", r"(?<![a-z])pwd(?![a-z])", "secret", "token", "credential",
    "authorization", r"(?<![a-z])cookie", r"jaas[.]config", r"oauthbearer[.]config", r"user[.]info", r"keystore[.]key$",
    r"ssl[.]key[.]pem",
    r"(?:account|shared|api|private|encryption|signing|master)[._-]?key", r"secret[._-]?access", r"connection[._-]string",
    r"sas[._-](?:fixed|token)",
)  # fmt: skip
"""What the name of a secret's key has in it."""
_KEY = re.compile("|".join(_WORDS), re.IGNORECASE)
# Names that speak of secrets and hold none: addresses, times, switches, classes, files.
_HARMLESS = re.compile(
    r"(?:^|[._-])(?:uri|urls?|endpoint|ms|seconds|minutes|enabled|type|provider|providers|scope|audience|version|class"
    r"|classes|location|file|path|algorithm|interval|timeout|ratio|name|mechanism)(?:$|[._-](?=[^.]*[.]|$))"
    r"|(?:url|uri|endpoint|enabled|provider|type|name|ms)$",
    re.IGNORECASE,
)
_HARMLESS_VALUES = frozenset(("true", "false", "none", "null", ""))
SPARK_REDACTION = "(?i)" + "|".join((*_WORDS, r"access[.]?key"))
"""Spark's `spark.redaction.regex`: properties that it shows masked, in plans too."""

_USER_INFO = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://([^/?#\s\"']*)@")
_ASSIGNED = re.compile(
    r"(?:^|(?<=[?&;,\s{\"'<]))[A-Za-z0-9_.-]*?"
    r"(?:password|passwd|passphrase|pwd|secret|token|signature|sig|accountkey|sharedaccesskey|accesskey|apikey|api_key)"
    r"[\"']?\s*[=:]\s*(?:\"((?:[^\"\\]|\\.)*)\"|'((?:[^'\\]|\\.)*)'|([^\s\"'&;,}]+))",
    re.IGNORECASE,
)
_SCHEMES = re.compile(r"\b(?:Bearer|Basic|Digest|Negotiate|ApiKey)\s+([A-Za-z0-9+/=._~-]{4,})")
_FORMS = (
    re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*"),
    re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL),
)
_PEM_LINE = re.compile(r"[A-Za-z0-9+/=]{16,}")


def is_secret_key(key: str) -> bool:
    """Whether the name of a key says that its value is a secret."""
    return _KEY.search(key) is not None and _HARMLESS.search(key) is None


def secrets_of(key: str, value: str) -> set[str]:
    """The secrets in the value of a key: all of it where the key says so, and what its form gives away."""
    found = set(secrets_in(value))
    if is_secret_key(key) and value.lower() not in _HARMLESS_VALUES:
        found.add(value)
    return found


def secrets_in(value: str) -> Iterator[str]:
    """The parts of a text that have the form of a secret: the password of an address, the value of `password=`, what follows
    `Bearer`, keys of AWS, JSON web tokens, private keys.
    """
    for match in _USER_INFO.finditer(value):
        _, colon, password = match[1].partition(":")
        if colon and password:
            yield password
            yield urllib.parse.unquote(password)
    for match in _ASSIGNED.finditer(value):
        found = match[1] or match[2] or match[3]
        if found and found.lower() not in _HARMLESS_VALUES:
            yield found
            yield urllib.parse.unquote(found)
    yield from (match[1] for match in _SCHEMES.finditer(value))
    for form in _FORMS:
        for match in form.finditer(value):
            yield match[0]
            if "PRIVATE KEY" in match[0]:
                yield from _PEM_LINE.findall(match[0])
