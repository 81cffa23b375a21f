"""Kerberos (GSSAPI) at a real broker and a real key distribution center: the settings of a pipeline file log tasks in where
the package gssapi is installed, and the driver's client where it is built for it; elsewhere, as with the packages of PyPI,
each is refused with a remedy. In time: unit/kafka/test_security.py.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from kafka.protocol.metadata import MetadataRequest

from frazil.errors import SpecError, UnavailableError
from frazil.kafka.fetch.connection import connect, is_refusal
from frazil.kafka.properties import task_properties
from frazil.kafka.topics import KafkaTopics
from frazil.runtime.broker import EmbeddedBroker
from tests.fixtures.certificates import Authority
from tests.fixtures.stores.kerberos import REALM, Kdc
from tests.integration.servers import HOST, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC, USER = "orders", "frazil"
NAME = "localhost"
"""A service's principal has its host's name, which clients look up by the address."""


@dataclass(frozen=True)
class Kerberized:
    """A broker whose one listener for clients takes tickets alone, over TLS."""

    kdc: Kdc
    #: The section `kafka` of a pipeline file.
    properties: dict[str, str]


@pytest.fixture(scope="module")
def kerberized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kerberized]:
    folder = tmp_path_factory.mktemp("kerberos")
    service, authority, ports = f"kafka/{NAME}", Authority(folder), [free_port() for _ in range(3)]
    kdc = Kdc(folder / "kdc", service, USER)
    addresses = {name: f"{HOST}:{port}" for name, port in zip(("BROKER", "CONTROLLER"), ports[:2], strict=True)}
    addresses["CLIENTS"] = f"{NAME}:{ports[2]}"
    jaas = (
        "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        f' keyTab="{kdc.keytab}" principal="{service}@{REALM}";'
    )
    settings = {
        "listeners": ",".join(f"{name}://{address}" for name, address in addresses.items()),
        "advertised.listeners": ",".join(f"{name}://{addresses[name]}" for name in ("BROKER", "CLIENTS")),
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_SSL",
        "controller.quorum.voters": f"1@{addresses['CONTROLLER']}",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(authority.make("broker", host=NAME).together),
        "sasl.kerberos.service.name": "kafka",
        "listener.name.clients.sasl.enabled.mechanisms": "GSSAPI",
        "listener.name.clients.gssapi.sasl.jaas.config": jaas,
    }
    with ExitStack() as opened:
        opened.callback(kdc.kill)
        kdc.start()
        broker = EmbeddedBroker(folder / "broker", ports[0], settings)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("JDK_JAVA_OPTIONS", f"-Djava.security.krb5.conf={kdc.configuration}")
            opened.enter_context(broker)
        admin = AdminClient({"bootstrap.servers": addresses["BROKER"]})
        admin.create_topics([NewTopic(TOPIC, 1)])[TOPIC].result(20)
        yield Kerberized(
            kdc,
            {
                "bootstrap.servers": addresses["CLIENTS"],
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(authority.file),
                "sasl.mechanism": "GSSAPI",
                "sasl.kerberos.service.name": "kafka",
                "sasl.kerberos.keytab": str(kdc.keytab),
                "sasl.kerberos.principal": f"{USER}@{REALM}",
            },
        )


def test_the_settings_of_the_file_log_tasks_in_where_their_package_is_installed(
    kerberized: Kerberized, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(kerberized.kdc.configuration))
    if find_spec("gssapi") is None:
        with pytest.raises(SpecError, match="Python package gssapi, which is not installed") as lacking:
            task_properties(kerberized.properties)
        assert lacking.value.remedy.startswith("install gssapi here and where tasks run")
        return
    settings = task_properties(kerberized.properties)
    host, _, port = settings["bootstrap.servers"].rpartition(":")
    with connect(host, int(port), settings, 20) as connection:
        asked = MetadataRequest(topics=None, allow_auto_topic_creation=False, version=4)
        assert [topic.name for topic in connection.ask(asked, 20).topics] == [TOPIC]
    stranger = {**settings, "sasl.kerberos.principal": f"nobody@{REALM}"}
    with pytest.raises(UnavailableError, match="Kerberos authentication failed") as refused:
        connect(host, int(port), stranger, 20)
    assert is_refusal(refused.value)
    assert refused.value.remedy.startswith("check sasl.mechanism and the user")


def test_the_driver_logs_in_where_its_client_can_and_check_names_what_it_lacks(
    kerberized: Kerberized, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KRB5_CONFIG", str(kerberized.kdc.configuration))
    try:
        can_log_in = bool(KafkaTopics(kerberized.properties).cluster_id())
    except SpecError:
        can_log_in = False
    document = {"pipeline": "p", "kafka": kerberized.properties, "tables": {"s.orders": {"topic": TOPIC}}}
    (tmp_path / "frazil.yaml").write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "frazil.cli.main", "check", "--output", "json"]
    checked = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    reported = json.loads(checked.stdout)
    if can_log_in:
        assert reported["ok"], reported
        return
    assert checked.returncode == 2
    assert "built without GSSAPI (Kerberos)" in reported["error"]["message"]
    assert "built with libsasl2" in reported["error"]["remedy"]
    assert ("gssapi" in reported["error"]["remedy"]) == (find_spec("gssapi") is None)
