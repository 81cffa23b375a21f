"""Secrets: references to them, `${env:NAME}` and `${file:PATH}` inside a string, and the forms of those written literally.

Every value that was put in is remembered, so that it can be removed from all output. A password that is
written into the file itself is remembered too, where the name of its key or its form gives it away. One list of names and
forms serves the pipeline file, the properties that a catalog vends, and Spark, which leaves them out of its plans.
"""

from __future__ import annotations

import difflib
import re
import threading
import urllib.parse
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from frazil.errors import SpecError

MASK = "***"
LIMIT_BYTES = 1024 * 1024
SHORTEST_CHARACTERS = 3
"""A shorter secret is in many words that are no secret: it is masked only where it is a whole value."""
_REFERENCE = re.compile(r"\$\{([A-Za-z]+):([^}]*)\}")
_BARE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::?[-=?+][^}]*)?\}")
"""A reference as a shell or Docker Compose writes it."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_WORDS = (
    "password", "passwd", "passphrase", "passcode", r"(?<![a-z])pwd(?![a-z])", "secret", "token", "credential",
    "authorization", r"(?<![a-z])cookie", r"jaas[.]config", r"oauthbearer[.]config", r"user[.]info", r"keystore[.]key$",
    r"ssl[.]key[.]pem",
    r"(?:account|shared|api|private|en?cryption|sse|signing|master)[._-]?key", r"secret[._-]?access",
    r"protect[._-]key", r"connection[._-]string", r"sas[._-](?:fixed|token)",
)  # fmt: skip
"""What the name of a secret's key has in it."""
SECRET_KEYS = frozenset(("protect_key",))
"""Keys of a table whose models replace references to secrets."""
_KEY = re.compile("|".join(_WORDS), re.IGNORECASE)
# Names that contain such a word and hold no secret: addresses, times, switches, classes, files.
_HARMLESS = re.compile(
    r"(?:^|[._-])(?:uri|urls?|endpoint|ms|seconds|minutes|enabled|type|provider|providers|scope|audience|version|class"
    r"|classes|location|file|path|algorithm|interval|timeout|ratio|name|mechanism)(?:$|[._-](?=[^.]*[.]|$))"
    r"|(?:url|uri|endpoint|enabled|provider|type|name|ms)$",
    re.IGNORECASE,
)
_HARMLESS_VALUES = frozenset(("true", "false", "none", "null", ""))
SPARK_REDACTION = "(?i)" + "|".join((*_WORDS, r"access[.]?key"))
"""Spark's `spark.redaction.regex`: properties that it shows masked, in plans too."""

_PLACEHOLDER = "placeholder-of-a-secret-32-bytes:9092"
"""Long enough for a key and for a token, and an address as Kafka's clients take it."""
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


def has_reference(text: str) -> bool:
    """Whether `text` asks for a secret."""
    return any(match[1] in ("env", "file") for match in _REFERENCE.finditer(text))


def redact(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret masked."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = mask(text, secret)
    return text


def mask(text: str, secret: str) -> str:
    """`text` with one secret masked: everywhere, or a very short one where it is the whole text, is in quotes or
    angle brackets, or is the password of an address.
    """
    if len(secret) >= SHORTEST_CHARACTERS:
        return text.replace(secret, MASK)
    if text == secret:
        return MASK
    return re.sub(rf"(?<=[\"'`<]){re.escape(secret)}(?=[\"'`>])|(?<=:){re.escape(secret)}(?=@)", MASK, text)


def variables_of(text: str) -> list[str]:
    """Returns the names of the environment's variables that a text refers to, in its order."""
    return [match[2] for match in _REFERENCE.finditer(text) if match[1] == "env"]


def is_reference(text: str) -> bool:
    """Returns whether a text is one reference and nothing else."""
    return _REFERENCE.fullmatch(text) is not None


class Secrets:
    """Reads references from `environment` and from files, and remembers what it read in `secret_texts`.

    A relative path is relative to the current working directory.
    """

    def __init__(self, environment: Mapping[str, str], has_placeholders: bool = False) -> None:
        """has_placeholders: whether a secret that does not exist here is replaced by another text, where none is used."""
        self._environment = environment
        self._has_placeholders = has_placeholders
        #: The variables and the files that placeholders replace.
        self.missing: set[str] = set()
        self.secret_texts: set[str] = set()
        #: The texts whose references were replaced.
        self.resolved: set[str] = set()

    def resolve(self, text: str, key: str = "") -> str:
        """`text`, the value of `key`, with its references replaced; errors name variables and files, never values."""
        self.resolved.add(text)
        bare = _BARE_REFERENCE.search(text)
        if bare is not None and not key.startswith("spark."):  # Spark replaces names of its own.
            raise _not_a_reference(f"`${{{bare[1]}}}`", bare[1])
        resolved = _REFERENCE.sub(self._replace, text)
        self.secret_texts |= secrets_of(key, resolved)
        return resolved

    def filled(self, text: str) -> str:
        """Returns the text of a setting that is not a secret with the values of the variables that it refers to.

        Raises: SpecError for a variable that is not set.
        """
        self.resolved.add(text)
        return _REFERENCE.sub(lambda m: self._read_variable(m[2]) if m[1] == "env" else m[0], text)

    def _replace(self, match: re.Match[str]) -> str:
        source, name = match[1], match[2]
        if self._has_placeholders and self._is_missing(source, name):
            self.missing.add(name)
            return _PLACEHOLDER
        if source == "env":
            value = self._read_variable(name)
        elif source == "file":
            value = _read_file(name)
        elif difflib.get_close_matches(source.lower(), ("env", "file")):
            message = f"`${{{source}:…}}` is not a reference to a secret"
            raise SpecError(message, remedy="write `${env:NAME}` or `${file:PATH}`")
        else:
            return match[0]
        self.secret_texts.add(value)
        return value

    def _is_missing(self, source: str, name: str) -> bool:
        if source == "env":
            return not self._environment.get(name)
        return source == "file" and not Path(name).exists()

    def _read_variable(self, name: str) -> str:
        match = _VARIABLE.match(name)
        if match is not None and match[0] != name:
            raise _not_a_reference(f"`${{env:{match[0]}…}}`", match[0])
        value = self._environment.get(name)
        if not value:
            state = "is not set" if value is None else "is empty"
            raise SpecError(f"the environment variable `{name}` {state}", remedy=f"set {name} before starting Frazil")
        # Python decodes bytes that are not UTF-8 to surrogates.
        if any("\ud800" <= character <= "\udfff" for character in value):
            raise SpecError(f"the environment variable `{name}` is not UTF-8", remedy="set it to UTF-8 text")
        return value


def _not_a_reference(what: str, name: str) -> SpecError:
    remedy = f"write `${{env:{name}}}` for an environment variable; it has no default"
    return SpecError(f"{what} is not a reference to a secret", remedy=remedy)


def _read_file(name: str) -> str:
    try:
        with Path(name).open("rb") as file:
            content = file.read(LIMIT_BYTES + 1)
        value = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except OSError as error:
        reason = "does not exist" if isinstance(error, FileNotFoundError) else f"cannot be read ({error.strerror})"
        raise SpecError(f"the secret's file `{name}` {reason}", remedy="create it, or correct its path") from None
    except UnicodeDecodeError:
        raise SpecError(f"the secret's file `{name}` is not UTF-8", remedy="save the secret as UTF-8 text") from None
    if not value or len(content) > LIMIT_BYTES:
        state = "is empty" if not value else f"is larger than {LIMIT_BYTES} bytes"
        raise SpecError(f"the secret's file `{name}` {state}", remedy="write the secret, and only it, into the file")
    return value


def is_secret_key(key: str) -> bool:
    """Whether the value of a key with this name is a secret."""
    return _KEY.search(key) is not None and _HARMLESS.search(key) is None


def secrets_of(key: str, value: str) -> set[str]:
    """The secrets in the value of a key: all of it where `is_secret_key`, and every part that has the form of a secret."""
    secrets = set(secrets_in(value))
    if is_secret_key(key) and value.lower() not in _HARMLESS_VALUES:
        secrets.add(value)
    return secrets


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
        secret = match[1] or match[2] or match[3]
        if secret and secret.lower() not in _HARMLESS_VALUES:
            yield secret
            yield urllib.parse.unquote(secret)
    yield from (match[1] for match in _SCHEMES.finditer(value))
    for form in _FORMS:
        for match in form.finditer(value):
            yield match[0]
            if "PRIVATE KEY" in match[0]:
                yield from _PEM_LINE.findall(match[0])


MOST_KEPT = 1000
_SHORTEST_VENDED = 6


class Vended:
    """The newest vended secrets, at most MOST_KEPT: a catalog may vend other credentials at every load. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._secrets: dict[str, None] = {}
        self._values: frozenset[str] = frozenset()

    @property
    def values(self) -> frozenset[str]:
        """The secrets; the same object as long as none is added."""
        return self._values

    def note(self, properties: Mapping[str, str]) -> None:
        """Adds the values of properties whose names mark them as secret."""
        secrets = secrets_among(properties)
        if secrets <= self._values:
            return
        with self._lock:
            for secret in sorted(secrets):
                self._secrets.pop(secret, None)
                self._secrets[secret] = None
            for oldest in list(self._secrets)[: max(0, len(self._secrets) - MOST_KEPT)]:
                del self._secrets[oldest]
            self._values = frozenset(self._secrets)


def secrets_among(properties: Mapping[str, str]) -> set[str]:
    """Returns the secret values of a catalog's properties, and of a pair `id:secret` the secret alone too."""
    secrets = set()
    for name, value in properties.items():
        if is_secret_key(name):
            _, _, after = value.partition(":")
            secrets |= {part for part in (value, after) if len(part) >= _SHORTEST_VENDED}
    return secrets


VENDED = Vended()
"""The vended secrets of this process."""
