"""Properties of stores: what tasks obey, what is refused with its name, and what reaches Java alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from frazil.errors import SpecError
from frazil.store.addresses import address_of
from frazil.store.clients import client_of
from frazil.store.properties import (
    PROXY,
    STORES,
    TABLE,
    StoreProperty,
    check_property,
    check_sent,
    check_table_properties,
    credentials_end_ms,
    is_known,
    property_of,
    task_properties,
)

KEYS = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "client.region": "eu-central-1"}
ACCOUNT = "abfss://data@lake.dfs.core.windows.net/t"
# A value for each property that tasks obey, what it needs besides, and a location.
SAMPLES: dict[str, tuple[str, dict[str, str], str]] = {
    "s3.endpoint": ("https://store.example", {}, "s3://lake/t"),
    "s3.path-style-access": ("true", {"s3.endpoint": "https://store.example"}, "s3://lake/t"),
    "client.region": ("us-west-2", {}, "s3://lake/t"),
    "s3.access-key-id": ("other", {}, "s3://lake/t"),
    "s3.secret-access-key": ("other", {}, "s3://lake/t"),
    "s3.session-token": ("token", {}, "s3://lake/t"),
    "s3.session-token-expires-at-ms": ("1795258921596", {}, "s3://lake/t"),
    "s3.sse.type": ("s3", {}, "s3://lake/t"),
    "s3.sse.key": ("arn:aws:kms:eu-central-1:1:key/2", {"s3.sse.type": "kms"}, "s3://lake/t"),
    "s3.write.tags.": ("ingest", {}, "s3://lake/t"),
    "s3.write.storage-class": ("INTELLIGENT_TIERING", {}, "s3://lake/t"),
    "s3.delete-enabled": ("false", {}, "s3://lake/t"),
    "s3.delete.tags.": ("gone", {}, "s3://lake/t"),
    "s3.access-points.": ("alias-s3alias", {}, "s3://lake/t"),
    "s3.acceleration-enabled": ("true", {}, "s3://lake/t"),
    "s3.dualstack-enabled": ("true", {}, "s3://lake/t"),
    "s3.checksum-enabled": ("true", {}, "s3://lake/t"),
    "s3.retry.num-retries": ("2", {}, "s3://lake/t"),
    "s3.retry.min-wait-ms": ("50", {}, "s3://lake/t"),
    "s3.retry.max-wait-ms": ("500", {}, "s3://lake/t"),
    "http-client.type": ("urlconnection", {"http-client.urlconnection.socket-timeout-ms": "1"}, "s3://lake/t"),
    "http-client.apache.connection-timeout-ms": ("100", {}, "s3://lake/t"),
    "http-client.apache.socket-timeout-ms": ("100", {}, "s3://lake/t"),
    "http-client.urlconnection.connection-timeout-ms": ("1", {"http-client.type": "urlconnection"}, "s3://lake/t"),
    "http-client.urlconnection.socket-timeout-ms": ("1", {"http-client.type": "urlconnection"}, "s3://lake/t"),
    "http-client.proxy-endpoint": ("http://proxy:3128", {}, "s3://lake/t"),
    "gcs.oauth2.token": ("token", {}, "gs://lake/t"),
    "gcs.oauth2.token-expires-at": ("1795258921596", {}, "gs://lake/t"),
    "gcs.no-auth": ("true", {"gcs.oauth2.token": "token"}, "gs://lake/t"),
    "gcs.encryption-key": ("MDEyMzQ1Njc4OTAxMjM0NTY3ODkwMTIzNDU2Nzg5MDE=", {}, "gs://lake/t"),
    "gcs.user-project": ("payer", {}, "gs://lake/t"),
    "gcs.service.host": ("http://127.0.0.1:4443", {}, "gs://lake/t"),
    "adls.sas-token.": ("sv=1&sig=abc", {}, ACCOUNT),
    "adls.sas-token-expires-at-ms.": ("1795258921596", {}, ACCOUNT),
    "adls.connection-string.": ("https://other.dfs.core.windows.net", {}, ACCOUNT),
    "adls.auth.shared-key.account.name": ("other", {"adls.auth.shared-key.account.key": "a2V5"}, ACCOUNT),
    "adls.auth.shared-key.account.key": ("a2V5", {}, ACCOUNT),
    "adls.token": ("token", {}, ACCOUNT),
    "oss.endpoint": ("https://oss-eu.example", {}, "oss://lake/t"),
    "client.access-key-id": ("key", {"oss.endpoint": "https://o"}, "oss://lake/t"),
    "client.access-key-secret": ("s", {"oss.endpoint": "https://o", "client.access-key-id": "k"}, "oss://lake/t"),
    "client.security-token": ("s", {"oss.endpoint": "https://o", "client.access-key-id": "k"}, "oss://lake/t"),
}
# What the name of one of a family ends with.
MEMBERS = {"s3.access-points.": "lake", "adls.": "lake.dfs.core.windows.net"}
# Obeyed elsewhere: a second key that must be the same, a digest of the key.
ELSEWHERE = ("gcs.decryption-key", "s3.sse.md5")
EVERY = [known for properties in STORES.values() for known in properties]


def _name(known: StoreProperty) -> str:
    ends = next((end for start, end in MEMBERS.items() if known.name.startswith(start)), "team")
    return known.name + ends if known.name.endswith(".") else known.name


def _effect(properties: dict[str, str], location: str) -> Any:
    """What a task does with these properties: everything that its client was made with."""
    try:
        client = client_of(task_properties(properties), address_of(location))
    except SpecError as error:
        return error.message
    store: Any = client.store
    identity = store.credential_provider() if store.credential_provider else None
    settings = (store.config, store.client_options, store.retry_config, identity)
    return (settings, client.tags, client.attributes, client.may_delete, credentials_end_ms(properties))


def test_empty_keys_are_none_and_blanks_around_keys_are_no_part_of_them() -> None:
    """As Amazon's client for Java has it: a file of a secret may end with a line break."""
    names = ("s3.access-key-id", "s3.secret-access-key", "s3.session-token")

    def found(*values: str) -> Any:
        store: Any = client_of(dict(zip(names, values, strict=True)), address_of("s3://lake/t")).store
        return store.credential_provider and {**store.credential_provider(), "expires_at": None}

    keys = {"access_key_id": "key", "secret_access_key": "secret", "token": None, "expires_at": None}
    assert found(" key ", "secret\n", "") == keys
    assert found("key", "secret", "session") == {**keys, "token": "session"}
    assert found("", "", "session") is None


def test_tasks_take_the_drivers_proxy_and_a_named_one_to_s3_alone() -> None:
    def options(location: str, **own: str) -> set[tuple[str, str]]:
        named = {**KEYS, "http-client.proxy-endpoint": "http://named:1", **own}
        found: Any = client_of(named, address_of(location)).store
        return {(name, text) for name, text in found.client_options.items() if name.startswith("proxy")}

    direct = ("proxy_url", "http://localhost")
    assert options("gs://lake/t") == options(ACCOUNT) == set(), "Iceberg reads the name for S3 alone"
    assert options("gs://lake/t", **{PROXY: "http://of-java:2"}) == {("proxy_url", "http://of-java:2")}
    assert options("gs://lake/t", **{PROXY: ""}) == {direct, ("proxy_excludes", "storage.googleapis.com")}
    own = {PROXY: "", "gcs.service.host": "http://gcs.internal:4443"}
    assert options("gs://lake/t", **own) == {direct, ("proxy_excludes", "gcs.internal")}
    assert options(ACCOUNT, **{PROXY: "http://of-java:2"}) == {("proxy_url", "http://of-java:2")}
    assert options(ACCOUNT, **{PROXY: ""}) == {direct, ("proxy_excludes", "lake.blob.core.windows.net")}
    assert options("s3://lake/t") == {("proxy_url", "http://named:1")}
    assert options("s3://lake/t", **{PROXY: "http://of-java:2"}) == {("proxy_url", "http://of-java:2")}


@pytest.mark.parametrize("name", ["connection-timeout-ms", "socket-timeout-ms"])
def test_a_time_out_of_0_is_no_limit_as_to_javas_clients(name: str) -> None:
    store: Any = client_of({**KEYS, f"http-client.apache.{name}": "0"}, address_of("s3://lake/t")).store
    left = {"connection-timeout-ms": "read_timeout", "socket-timeout-ms": "connect_timeout"}[name]
    assert {"connect_timeout", "read_timeout"} & store.client_options.keys() == {left}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("http-client.apache.socket-timeout-ms", "10s", "write a whole number, such as 10000"),
        ("s3.retry.num-retries", "-1", "write a whole number, such as 5"),
        ("s3.retry.min-wait-ms", "", "write a whole number, such as 200"),
        ("http-client.proxy-endpoint", "proxy:3128", "write http://HOST:PORT, without a path, a user and a password"),
        ("http-client.proxy-endpoint", "http://u:p@proxy:3128", "write http://HOST:PORT, without a path, a user and a"),
    ],
)
def test_a_value_that_javas_client_cannot_have_or_leaves_out_is_refused(name: str, value: str, remedy: str) -> None:
    with pytest.raises(SpecError, match=rf"`{name}` is ") as raised:
        client_of({**KEYS, name: value}, address_of("s3://lake/t"))
    assert raised.value.remedy.startswith(remedy)


def test_each_property_is_described_once() -> None:
    names = Counter(known.name for known in (*EVERY, *TABLE))
    assert [name for name, count in names.items() if count > 1] == []
    assert all(known.note for known in (*EVERY, *TABLE))


@pytest.mark.parametrize("known", [one for one in EVERY if one.treatment in ("honoured", "translated")], ids=_name)
def test_a_property_that_tasks_obey_changes_what_they_do(known: StoreProperty) -> None:
    if known.name in ELSEWHERE:
        return
    value, needs, location = SAMPLES[known.name]
    without = {**KEYS, **needs}
    assert _effect({**without, _name(known): value}, location) != _effect(without, location)


@pytest.mark.parametrize(
    "name", ["s3.multipart.threshold", "client.assume-role.arn", "gcs.channel.write.chunk-size-bytes", "s3.region"]
)
def test_any_other_property_is_accepted_and_changes_nothing_for_tasks(name: str) -> None:
    check_property(name, "7")
    assert task_properties({name: "7"}) == {}
    assert is_known(name) == (name != "s3.region")


@pytest.mark.parametrize("known", [one for one in EVERY if one.treatment == "refused"], ids=_name)
def test_a_property_that_tasks_cannot_obey_is_refused_with_its_name_and_a_remedy(known: StoreProperty) -> None:
    with pytest.raises(SpecError, match=_name(known)) as raised:
        check_property(_name(known), "x")
    assert raised.value.remedy == known.note
    for harmless in known.harmless:
        check_property(_name(known), harmless)


@pytest.mark.parametrize("known", [one for one in TABLE if one.treatment == "refused"], ids=_name)
def test_a_table_whose_files_would_be_written_otherwise_is_refused(known: StoreProperty) -> None:
    with pytest.raises(SpecError, match=known.name) as raised:
        check_sent({}, {known.name: "x"}, "shop.orders")
    assert (raised.value.where, raised.value.remedy) == ("shop.orders", known.note)
    check_table_properties({"write.data.path": "s3://lake/elsewhere", "write.format.default": "parquet"})


def test_an_account_of_azure_is_named_by_its_host_except_in_what_a_catalog_sends() -> None:
    name = "adls.sas-token.lake"
    check_property(name, "sig=x", is_sent=True)
    with pytest.raises(SpecError, match=name) as raised:
        check_property(name, "sig=x")
    assert raised.value.remedy == f"write `{name}.dfs.core.windows.net`"
    check_property(f"{name}.dfs.core.windows.net", "sig=x")


def test_an_unknown_property_of_encryption_is_refused_with_the_nearest_name() -> None:
    for name in ("s3.sse.typ", "S3.SSE.type", " s3.sse.type", "s3.sse.type "):
        with pytest.raises(SpecError, match="is not a property of a store") as raised:
            check_property(name, "kms")
        assert raised.value.remedy == "did you mean `s3.sse.type`?", "Java's client would ignore it"
    for name in ("adls.kms.qqqqqqqqqqqqqqqqqqqq", PROXY):
        with pytest.raises(SpecError) as raised:
            check_property(name, "1")
        assert raised.value.remedy == "remove it: no store has it"
    check_property("rest-page-size", "10")


@pytest.mark.parametrize("known", [one for one in EVERY if one.treatment != "refused"], ids=_name)
def test_an_empty_value_is_refused_where_it_means_nothing(known: StoreProperty) -> None:
    """To Java's clients an empty address, region or number is an error in their own words, or a default of theirs."""
    if (known.note == "the keys" and known.name.startswith("s3.")) or known.name.endswith(".tags."):
        check_property(_name(known), "")
        return
    with pytest.raises(SpecError, match=f"`{_name(known)}` is empty") as raised:
        check_property(_name(known), " ")
    assert raised.value.remedy == "write its value, or remove it"
    check_property(_name(known), "", is_sent=True)


def test_amazons_name_for_every_region_is_that_of_the_default_one() -> None:
    """No address has it, and no store takes a signature for it."""
    found = [
        client_of({**KEYS, "client.region": name}, address_of("s3://lake/t")) for name in ("aws-global", "us-east-1")
    ]
    assert found[0].store.config == found[1].store.config  # type: ignore[union-attr]


def test_properties_that_a_catalog_sends_are_checked_too() -> None:
    sent = {"s3.region": "eu-central-1", "client.region": "eu-central-1", "s3.remote-signing-enabled": "false"}
    check_sent(sent, {}, "shop.orders")
    with pytest.raises(SpecError, match="remote-signing-enabled"):
        check_sent({**sent, "s3.remote-signing-enabled": "true"}, {}, "shop.orders")
    with pytest.raises(SpecError, match=r"s3\.sse\.context"):
        check_sent({**sent, "s3.sse.context": "a=b"}, {}, "shop.orders")


def test_what_only_the_catalog_needs_does_not_reach_tasks() -> None:
    properties = {"credential": "id:secret", "uri": "https://catalog", "client.assume-role.arn": "arn", **KEYS}
    assert task_properties(properties) == KEYS
    assert property_of("credential") is None
