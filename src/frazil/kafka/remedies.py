"""What to do where a broker refuses a certificate, a login or a right: for librdkafka in the driver and for tasks."""

from __future__ import annotations

from frazil.refusals import Settings, refusal_remedy

_SETTINGS = Settings(
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
    """Returns the remedy for what one of the two clients reports of TLS, a login or an ACL; empty for anything else."""
    if "AWS gives no credentials" in words:
        return "give this machine, and those that tasks run on, AWS credentials that may connect to the cluster"
    lower = words.lower()
    for kind, acl in _ACL_REMEDIES.items():
        if f"{kind} authorization" in lower or f"{kind.replace(' ', '')}authorization" in lower:
            return acl
    return refusal_remedy(words, _SETTINGS)
