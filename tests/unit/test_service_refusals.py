"""Refused certificates, logins and rights are recognised by the words of OpenSSL, Java and services, seen at real ones."""

from __future__ import annotations

import pytest

from frazil.refusals import Settings, kafka_remedy, refusal_remedy

_RENEW = "renew the service's certificate"
_NAME = "use a host name that the service's certificate has"
_MINE = "the service refuses the certificate of this client, or wants one: check CERTIFICATE"
_TRUST = "name the authority of the service's certificate in TRUST"
_AGAIN = "issue the certificate again"
_RIGHT = "grant this user the right"
_LOGIN = "check LOGIN"


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("certificate has expired", _RENEW),
        ("CertificateExpiredException: NotAfter: Fri Jan 01 00:00:00 UTC 2021", _RENEW),
        ("error sending request: the store's certificate is not accepted: ExpiredContext", _RENEW),
        ("error sending request: the store's certificate is not accepted: NotValidForNameContext", _NAME),
        ("IP address mismatch, certificate is not valid for '127.0.0.1'.", _NAME),
        ("CertificateException: No subject alternative names matching IP address 127.0.0.1 found", _NAME),
        ("The hostname localhost could not be verified by hostnameverifier PgjdbcHostnameVerifier.", _NAME),
        ("error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42", _MINE),
        ("[SSL: TLSV13_ALERT_CERTIFICATE_REQUIRED] tlsv13 alert certificate required (_ssl.c:2649)", _MINE),
        ("ssl/tls alert certificate expired: SSL alert number 45", _MINE),
        ("PSQLException: FATAL: connection requires a valid client certificate", _MINE),
        ("SunCertPathBuilderException: unable to find valid certification path to requested target", _TRUST),
        ("[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: self-signed certificate", _TRUST),
        ("certificate verify failed: CA cert does not include key usage extension (_ssl.c:1029)", _AGAIN),
        ("certificate verify failed: Missing Authority Key Identifier (_ssl.c:1029)", _AGAIN),
        ("SSL certificate OpenSSL verify result: unable to get local issuer certificate (20)", _TRUST),
        ("PSQLException: ERROR: permission denied for table iceberg_tables", _RIGHT),
        ("S3Exception: Access Denied (Service: S3, Status Code: 403)", _RIGHT),
        ("ForbiddenException: Forbidden: not allowed", _RIGHT),
        (
            "S3Exception: The request signature we calculated does not match the signature you provided. Check your key"
            " and signing method. (Service: S3, Status Code: 403)",
            _LOGIN,
        ),
        ("S3Exception: The AWS Access Key Id you provided does not exist in our records. (Status Code: 403)", _LOGIN),
        ("DataLakeStorageException: Status code 403, Server failed to authenticate the request.", _LOGIN),
        ("HTTP error: invalid peer certificate: UnknownIssuer", _TRUST),
        ("NotAuthorizedException: Not authorized: who are you?", _LOGIN),
        ('PSQLException: FATAL: password authentication failed for user "frazil"', _LOGIN),
        ("SASL SCRAM-SHA-256 mechanism handshake failed: Broker: Unsupported SASL mechanism", _LOGIN),
        ("Connection refused (after 401ms in state CONNECT)", ""),
        ("no answer within 10 s", ""),
    ],
)
def test_the_words_of_a_refusal_lead_to_its_remedy(words: str, remedy: str) -> None:
    found = refusal_remedy(words, Settings("TRUST", "CERTIFICATE", "LOGIN"))
    assert found.startswith(remedy) if remedy else found == ""


def test_a_listener_without_sasl_is_not_taken_for_a_broker_that_does_not_run() -> None:
    words = "SASL PLAIN mechanism handshake failed: Broker: Request not valid in current SASL state: broker's supported"
    assert kafka_remedy(words).startswith(
        "name a listener of the broker with SASL in `bootstrap.servers`, or leave SASL"
    )


def test_a_broker_whose_name_is_wrong_is_not_taken_for_one_that_does_not_run() -> None:
    words = "kafk:9092/bootstrap: Failed to resolve 'kafk:9092': Name or service not known (after 1ms in state CONNECT)"
    assert kafka_remedy(words) == "correct the name of the host in `bootstrap.servers`, or let this machine resolve it"
    assert kafka_remedy("kafka:9092/bootstrap: Connect to ipv4#10.0.0.7:9092 failed: Connection refused") == ""
