"""What the catalog is opened with."""

from __future__ import annotations

from pathlib import Path

import pytest

from frazil.runtime.properties import catalog_properties
from frazil.spec import load_spec


def opened_with(folder: Path, catalog: str, kind: str = "type: rest, uri: http://catalog") -> dict[str, str]:
    """The properties that a pipeline file's `catalog` becomes."""
    file = folder / "frazil.yaml"
    file.write_text(
        'pipeline: p\nkafka: {bootstrap.servers: "x:1"}\ntables: {s.a: {topic: a}}\n'
        f"catalog: {{{kind}, {catalog}}}\n"
    )
    return catalog_properties(load_spec(file))


@pytest.mark.parametrize(
    ("properties", "waits_ms"), [("{}", "60000"), ('{rest.client.socket-timeout-ms: "5000"}', "5000")]
)
def test_requests_to_a_silent_rest_catalog_end_after_a_minute_or_the_files_timeout(
    tmp_path: Path, properties: str, waits_ms: str
) -> None:
    found = opened_with(tmp_path, f"properties: {properties}")
    assert found["rest.client.socket-timeout-ms"] == waits_ms
    assert not any(name.startswith(("s3.", "http-client.")) for name in found)


@pytest.mark.parametrize(
    ("properties", "waits_ms", "pause_ms"),
    [
        ("{}", "10000", "200"),
        ('{http-client.apache.socket-timeout-ms: "700", s3.retry.min-wait-ms: "1000"}', "700", "1000"),
    ],
)
def test_requests_to_s3_end_and_are_repeated_as_in_tasks_or_as_the_file_sets(
    tmp_path: Path, properties: str, waits_ms: str, pause_ms: str
) -> None:
    found = opened_with(tmp_path, f"warehouse: s3://lake/, properties: {properties}")
    assert found["http-client.apache.socket-timeout-ms"] == waits_ms
    assert found["s3.retry.min-wait-ms"] == pause_ms


@pytest.mark.parametrize(
    ("address", "properties", "waits"),
    [
        ("jdbc:postgresql://h/c", "{}", "60"),
        ("jdbc:mysql://h/c", "{}", "60000"),
        ("jdbc:mariadb://h/c", '{jdbc.socketTimeout: "5000"}', "5000"),
        ("jdbc:sqlite:c.db", "{}", None),
    ],
)
def test_requests_to_a_silent_database_end_after_a_minute_or_the_files_timeout(
    tmp_path: Path, address: str, properties: str, waits: str | None
) -> None:
    found = opened_with(tmp_path, f"warehouse: /w, properties: {properties}", f"type: jdbc, uri: '{address}'")
    assert found.get("jdbc.socketTimeout") == waits


@pytest.mark.parametrize(
    ("config", "credentials", "region"),
    [
        ("[default]\nregion = eu-west-3\n[profile lake]\noutput = json\n", "", "us-east-1"),
        ("[profile lake]\nservices = own\n[services own]\ns3 =\n  region = eu-west-3\n", "", "us-east-1"),
        ("[profile lake]\nregion = eu-west-3\n", "", None),
        ("", "[lake]\nregion = eu-west-3\n", None),
        ("region = eu-west-3\n", "", "us-east-1"),
    ],
)
def test_a_region_of_another_profile_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str, credentials: str, region: str | None
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_PROFILE", "lake")
    for name, text in {"AWS_CONFIG_FILE": config, "AWS_SHARED_CREDENTIALS_FILE": credentials}.items():
        (tmp_path / name).write_text(text)
        monkeypatch.setenv(name, str(tmp_path / name))
    found = opened_with(tmp_path, "warehouse: s3://lake/, properties: {s3.endpoint: http://store}")
    assert found.get("client.region") == region


@pytest.mark.parametrize(
    ("properties", "region"),
    [
        ("{s3.endpoint: http://store}", "us-east-1"),
        ("{s3.endpoint: http://store, client.region: eu-west-1}", "eu-west-1"),
        ("{s3.endpoint: https://s3.eu-west-1.amazonaws.com}", None),
        ("{}", None),
    ],
)
def test_a_store_that_is_not_amazon_s_has_a_region_without_being_asked_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, properties: str, region: str | None
) -> None:
    monkeypatch.delenv("AWS_REGION", raising=False)
    for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    assert opened_with(tmp_path, f"warehouse: s3://lake/, properties: {properties}").get("client.region") == region
    monkeypatch.setenv("AWS_REGION", "eu-central-1")
    found = opened_with(tmp_path, f"warehouse: s3://lake/, properties: {properties}").get("client.region")
    assert found == (region if region == "eu-west-1" else None)
    monkeypatch.delenv("AWS_REGION")
    (tmp_path / "config").write_text("[default]\nregion = eu-central-1\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    found = opened_with(tmp_path, f"warehouse: s3://lake/, properties: {properties}").get("client.region")
    assert found == (region if region == "eu-west-1" else None), "as the client's own configuration reports"
