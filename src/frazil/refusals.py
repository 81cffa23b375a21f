"""Why a service and this process refuse each other, and what to do about it: Kafka's brokers, catalogs and stores.

It is read from the words of OpenSSL, Java, the clients and the services themselves.
"""

from __future__ import annotations

import re
import socket
import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """Where the pipeline file has what a service asks for."""

    #: The authorities of the service's certificate.
    trust: str
    #: The certificate that this client shows.
    certificate: str
    #: Who this client is.
    login: str


_ALERT = re.compile(r"\balert\b|certificate.required|requires a valid client certificate", re.I)
_EXPIRED = re.compile(
    r"certificate has expired|certificate is expired|CertificateExpired|NotAfter|: Expired(Context)?\b", re.I
)
_OTHER_NAME = re.compile(
    r"(hostname|ip address) mismatch|no subject alternative|no name matching|could not be verified by host"
    r"|doesn't match any of the subject|certificate is not valid for|NotValidForName",
    re.I,
)
# What Python demands of certificates from 3.13 on (RFC 5280), in the words of OpenSSL.
_MALFORMED = re.compile(
    r"missing (authority|subject) key identifier|key identifier marked critical|does not include key usage"
    r"|basic constraints of ca cert not|empty subject alternative name|issuer name empty|requires at least x509v3",
    re.I,
)
_UNTRUSTED = re.compile(
    r"verify failed|CERTIFICATE_VERIFY_FAILED|valid certification path|PKIX|self.signed|local issuer|UnknownIssuer",
    re.I,
)
# Stores answer 403 to these as well as to a missing right; Amazon's client for Java leaves the code of the error out.
_KEYS = re.compile(
    r"InvalidAccessKeyId|Access ?Key Id you provided|SignatureDoesNotMatch|request signature we calculated"
    r"|AuthenticationFailed|failed to authenticate the request|security token included in the request is invalid"
    r"|InvalidClientTokenId|InvalidSignatureException",
    re.I,
)
_LOGIN = re.compile(
    r"authentication failed|invalid credentials|invalid_client|not authorized: |NotAuthorizedException|\b401\b"
    r"|UnrecognizedClientException|FATAL: role"
    r"|SASL authentication error|unsupported SASL mechanism"
    r"|no password was provided|pg_hba.conf",
    re.I,
)
_RIGHT = re.compile(
    r"permission denied|access ?denied|ForbiddenException|\b403\b|Not authorized to access|AuthorizationException"
    r"|authorization failed",
    re.I,
)


def refusal_remedy(words: str, settings: Settings) -> str:
    """Returns the remedy of a refused certificate, login or right; empty where the words are of something else."""
    if _EXPIRED.search(words) and not _ALERT.search(words):
        return "renew the service's certificate, or set this machine's clock; Frazil retries with back-off"
    if _OTHER_NAME.search(words):
        return "use a host name that the service's certificate has, or give it a certificate with this name"
    if _ALERT.search(words):
        return f"the service refuses the certificate of this client, or wants one: check {settings.certificate}"
    if _MALFORMED.search(words):
        return (
            "issue the certificate again without this fault, which Python 3.13 refuses, or run Frazil with Python 3.12"
        )
    if _UNTRUSTED.search(words):
        return f"name the authority of the service's certificate in {settings.trust}"
    if _RIGHT.search(words) and not _KEYS.search(words):
        return "grant this user the right that is named here, for the table or the place that is named"
    if _KEYS.search(words) or _LOGIN.search(words):
        return f"check {settings.login}; Frazil retries with back-off"
    return ""


def certificate_fault(host: str, port: int, authorities: str | None, texts: str | None, timeout_s: float) -> str:
    """Returns what OpenSSL finds wrong with the certificate of a server; empty where it finds nothing. authorities: a file
    of them; texts: the same as PEM; without either, those of this machine.
    """
    try:
        context = ssl.create_default_context(cafile=authorities, cadata=texts)
        with (
            socket.create_connection((host, port), timeout_s) as connection,
            context.wrap_socket(connection, server_hostname=host),
        ):
            return ""
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    except (OSError, ValueError):
        return ""


_KAFKA = Settings(
    trust="ssl.ca.location, or of a token endpoint in https.ca.location",
    certificate="ssl.certificate.location and ssl.key.location",
    login="sasl.mechanism and the user, password or client secret under `kafka`",
)
_ACL_REMEDIES = {
    "topic": "allow this user to DESCRIBE and READ the topic, and to READ and WRITE a topic of dead letters",
    "group": "allow this user to READ groups with the prefix `frazil-`",
    "transactional id": "allow this user to WRITE with transactional ids of the prefix `frazil-`",
    "cluster": "allow this user to DESCRIBE the cluster",
}


def kafka_remedy(words: str) -> str:
    """Returns the remedy for what either client reports of a name, TLS, a login or an ACL; empty for anything else."""
    if "Failed to resolve" in words:
        return "correct the name of the host in `bootstrap.servers`, or let this machine resolve it"
    if "AWS gives no credentials" in words:
        return "give this machine, and those that tasks run on, AWS credentials that may connect to the cluster"
    if "in current SASL state" in words:
        return (
            "name a listener of the broker with SASL in `bootstrap.servers`, or leave SASL out of `security.protocol`"
        )
    lower = words.lower()
    for kind, acl in _ACL_REMEDIES.items():
        if f"{kind} authorization" in lower or f"{kind.replace(' ', '')}authorization" in lower:
            return acl
    return refusal_remedy(words, _KAFKA)


OF_TASKS = Settings(
    trust="a file that the variable SSL_CERT_FILE names for Frazil, and on a cluster for executors"
    " (`spark: {conf: {spark.executorEnv.SSL_CERT_FILE: …}}`)",
    certificate="the certificate and the key under `catalog.properties`",
    login="the credentials under `catalog.properties`",
)
"""Where the pipeline file has what the client of tasks shows to a store."""
# Google's client for Java may report no more than the request, here one for a bucket's objects, and that nothing was found.
NO_BUCKET = re.compile(
    r"NoSuchBucket|ContainerNotFound|specified (bucket|container) does not exist"
    r"|404 Not Found\s+\w+\s+\S+/storage/v1/b/[^/\s]+/o\?",
    re.I,
)
"""What stores say of a bucket, or a container, that does not exist."""
BUCKET_REMEDY = "create the bucket, or correct `catalog.warehouse`; Frazil retries with back-off"
# What a session's token is called that has expired, by the clients of the stores that give such.
_EXPIRED_CREDENTIALS = re.compile(
    r"ExpiredToken|token (included in the request )?(is|has) expired|InvalidToken\b", re.I
)
_LOCAL = re.compile(r"\[Errno (1|13|17|20|30)\]|Operation not permitted|Read-only file system")
_UNREACHABLE = re.compile(
    r"dns error|error sending request|connection refused|network is unreachable|no route to host|timed? ?out"
    r"|failed to lookup|Name or service not known",
    re.I,
)


def store_remedy(words: str) -> str:
    """Returns what to do about an error of the client of a store that tasks have; empty for one of something else."""
    if _LOCAL.search(words):
        return "let this user write to the folder, or correct `catalog.warehouse`; Frazil retries with back-off"
    if _EXPIRED_CREDENTIALS.search(words):
        return (
            "renew the credentials under `catalog.properties`, or let the catalog do so; Frazil retries with back-off"
        )
    if NO_BUCKET.search(words):
        return BUCKET_REMEDY
    if remedy := refusal_remedy(words, OF_TASKS):
        return remedy
    if _UNREACHABLE.search(words):
        return (
            "check the address of the store under `catalog.properties`, such as `s3.endpoint`, and that this machine reaches"
            " it; Frazil retries with back-off"
        )
    return ""
