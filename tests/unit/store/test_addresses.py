"""What addresses name, and the hosts at which buckets are reached."""

from __future__ import annotations

from itertools import product
from typing import Any, cast

import pytest
from botocore.endpoint_provider import EndpointProvider
from botocore.loaders import Loader

from frazil.errors import SpecError
from frazil.store.addresses import Address, address_of
from frazil.store.clients import client_of

US = {"client.region": "us-east-1"}
STORE = {"s3.endpoint": "https://store.example:9000", **US}
AT = "adls.connection-string.acc.dfs.core.windows.net"
BLOBS = "https://acc.blob.core.windows.net"


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://lake/wh/a b%2F=ü/x", Address("s3", "lake", "wh/a b%2F=ü/x")),
        ("s3a://lake/wh", Address("s3", "lake", "wh")),
        ("gs://lake/wh", Address("gcs", "lake", "wh")),
        ("oss://lake/wh", Address("oss", "lake", "wh")),
        ("abfss://data@acc.dfs.core.windows.net/wh", Address("adls", "data", "wh", "acc.dfs.core.windows.net")),
        ("hdfs://name:8020/wh/a b%2F", Address("hdfs", "name:8020", "wh/a b%2F")),
        ("/data/a b#c?d%20", Address("local", "", "/data/a b#c?d%20")),
        ("file:/data/x", Address("local", "", "/data/x")),
        ("file:///data/x", Address("local", "", "/data/x")),
        ("/data/hour=10:30/x", Address("local", "", "/data/hour=10:30/x")),
    ],
)
def test_an_address_is_read_as_java_reads_it(location: str, expected: Address) -> None:
    assert address_of(location) == expected


@pytest.mark.parametrize(
    "location",
    ["viewfs://name/wh", "hdfs:///wh", "s3://lake/a?b", "s3://lake/a#b", "s3://lake/a//b", "s3://lake//a", "s3:///a"],
)
def test_an_address_that_tasks_cannot_write_to_is_refused_with_a_remedy(location: str) -> None:
    with pytest.raises(SpecError) as raised:
        address_of(location)
    assert raised.value.where == location
    assert raised.value.remedy


@pytest.mark.parametrize(
    ("properties", "bucket", "expected"),
    [
        (US, "lake", "https://lake.s3.us-east-1.amazonaws.com"),
        (US, "la.ke", "https://s3.us-east-1.amazonaws.com"),
        (US, "My_lake", "https://s3.us-east-1.amazonaws.com"),
        (STORE, "la.ke", "https://store.example:9000"),
        (STORE, "my_lake", "https://store.example:9000"),
        ({**US, "s3.endpoint": "http://store.example"}, "la.ke", "http://la.ke.store.example"),
        ({"client.region": "cn-north-1"}, "lake", "https://lake.s3.cn-north-1.amazonaws.com.cn"),
        ({**US, "s3.path-style-access": "true"}, "lake", "https://s3.us-east-1.amazonaws.com"),
        ({**US, "s3.dualstack-enabled": "true"}, "lake", "https://lake.s3.dualstack.us-east-1.amazonaws.com"),
        ({**US, "s3.acceleration-enabled": "true"}, "lake", "https://lake.s3-accelerate.amazonaws.com"),
        (STORE, "lake", "https://lake.store.example:9000"),
        ({**STORE, "s3.path-style-access": "true"}, "lake", "https://store.example:9000"),
        ({**US, "s3.endpoint": "http://127.0.0.1:9000"}, "lake", "http://127.0.0.1:9000"),
        ({**STORE, "s3.access-points.lake": "point-s3alias"}, "lake", "https://point-s3alias.store.example:9000"),
    ],
)
def test_a_bucket_of_s3_is_at_the_host_that_java_would_ask(
    properties: dict[str, str], bucket: str, expected: str
) -> None:
    store: Any = client_of(properties, Address("s3", bucket, "")).store
    assert store.config["endpoint"] == expected


def test_a_bucket_of_s3_is_where_the_rules_of_amazon_s_clients_have_it() -> None:
    """All of Amazon's clients are made from the same rules, of which Python's are text."""
    loader = Loader()
    rules = loader.load_service_model("s3", "endpoint-rule-set-1", "2006-03-01")
    provider = EndpointProvider(rules, loader.load_data("partitions"))
    given = {
        "UseFIPS": False,
        "UseGlobalEndpoint": False,
        "DisableMultiRegionAccessPoints": False,
        "UseArnRegion": False,
    }
    regions = ("us-east-1", "us-gov-west-1", "cn-north-1", "eusc-de-east-1", "us-iso-east-1", "us-isob-east-1")
    places = [*((None, region) for region in regions), ("https://store.example:9000", "eu-west-1")]
    places += [("http://store.example/base", "eu-west-1")]
    buckets = ("lake", "my.lake", "My_lake", "x" * 64)
    for (endpoint, region), bucket, style in product(
        places, buckets, ("s3.path-style-access", "s3.dualstack-enabled", "")
    ):
        if endpoint and style == "s3.dualstack-enabled":
            continue  # Refused by the rules.
        asked = {**given, "Bucket": bucket, "Region": region, **({"Endpoint": endpoint} if endpoint else {})}
        flags = {"ForcePathStyle": style == "s3.path-style-access", "UseDualStack": style == "s3.dualstack-enabled"}
        wanted = provider.resolve_endpoint(**asked, **flags, Accelerate=False).url
        properties = {"client.region": region, style: "true", **({"s3.endpoint": endpoint} if endpoint else {})}
        config = cast(Any, client_of(properties, Address("s3", bucket, "")).store).config
        is_virtual = config["virtual_hosted_style_request"] == "true"
        assert (config["endpoint"] if is_virtual else f"{config['endpoint']}/{bucket}") == wanted, (region, properties)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"adls.sas-token.acc.dfs.core.windows.net": "?sig=x"}, {"sas_token": "sig=x", "endpoint": BLOBS}),
        # A catalog may send the account's name beside its host; Java looks for the host alone.
        ({"adls.sas-token.acc": "sig=x", "adls.token": "t"}, {"token": "t", "endpoint": BLOBS}),
        (
            {AT: "http://10.0.0.1:10000/acc", "adls.auth.shared-key.account.key": "a2V5"},
            {"access_key": "a2V5", "account_name": "acc", "endpoint": "http://10.0.0.1:10000/acc"},
        ),
        (
            {AT: "https://acc.dfs.core.usgovcloudapi.net/?sig=y", "adls.sas-token.acc.dfs.core.windows.net": "sig=x"},
            {"sas_token": "sig=y", "endpoint": "https://acc.blob.core.usgovcloudapi.net"},
        ),
        (
            {"adls.auth.shared-key.account.name": "real", "adls.auth.shared-key.account.key": "a2V5"},
            {"access_key": "a2V5", "account_name": "real", "endpoint": BLOBS},
        ),
        ({"adls.token": "t"}, {"token": "t", "endpoint": BLOBS}),
    ],
)
@pytest.mark.parametrize("kind", ["dfs", "blob"])
def test_an_account_of_azure_is_reached_as_java_would(
    properties: dict[str, str], expected: dict[str, str], kind: str
) -> None:
    """Whether the address names the host of its files (`abfss:`) or that of its blobs (`wasbs:`)."""
    named = {name.replace(".dfs.", f".{kind}."): value for name, value in properties.items()}
    store: Any = client_of(named, Address("adls", "data", "", f"acc.{kind}.core.windows.net")).store
    chosen = {**store.config, **store.credential_provider()}
    assert {name: value for name, value in chosen.items() if name in expected} == expected


@pytest.mark.parametrize(
    ("properties", "address", "mended"),
    [
        ({"s3.sse.type": "aes"}, Address("s3", "lake", ""), {"s3.sse.type": "kms"}),
        ({}, Address("oss", "lake", ""), {"oss.endpoint": "https://oss-eu.example"}),
        (
            {"gcs.encryption-key": "YQ==", "gcs.decryption-key": "Yg=="},
            Address("gcs", "l", ""),
            {"gcs.decryption-key": "YQ=="},
        ),
        (
            {AT: "AccountName=acc;AccountKey=a2V5"},
            Address("adls", "data", "", "acc.dfs.core.windows.net"),
            {
                AT: "https://acc.dfs.core.windows.net",
                "adls.auth.shared-key.account.name": "acc",
                "adls.auth.shared-key.account.key": "a2V5",
            },
        ),
    ],
)
def test_a_value_that_cannot_be_obeyed_is_refused_until_its_remedy_is_done(
    properties: dict[str, str], address: Address, mended: dict[str, str]
) -> None:
    name = next(iter(mended))
    with pytest.raises(SpecError) as raised:
        client_of(properties, address)
    assert raised.value.where == name
    client_of({**properties, **mended}, address)


def test_a_container_without_its_account_is_refused() -> None:
    with pytest.raises(SpecError, match="account") as raised:
        client_of({}, Address("adls", "data", ""))
    assert raised.value.remedy == "write abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/PATH"


def test_an_access_point_that_is_named_by_its_arn_is_refused() -> None:
    properties = {**US, "s3.access-points.lake": "arn:aws:s3:us-east-1:1:accesspoint/p"}
    with pytest.raises(SpecError, match="ARN") as raised:
        client_of(properties, Address("s3", "lake", ""))
    assert (raised.value.where, raised.value.remedy) == ("s3.access-points.lake", "write its alias")
