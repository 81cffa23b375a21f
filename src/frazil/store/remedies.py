"""What to do about a store that refuses this client, lacks what it is asked for, or does not answer, by its words."""

from __future__ import annotations

import re

from frazil.refusals import Settings, refusal_remedy

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
_EXPIRED = re.compile(r"ExpiredToken|token (included in the request )?(is|has) expired|InvalidToken\b", re.I)
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
    if _EXPIRED.search(words):
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
