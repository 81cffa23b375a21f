"""Kerberos (GSSAPI) at a real broker and a real key distribution center: the settings of a pipeline file log Java's client
in, which tasks read with; the driver's client does so where it is built for it, and is refused with a remedy where it is
not, as the package of PyPI. In time: unit/kafka/test_security.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]
from py4j.protocol import Py4JJavaError

from frazil.catalog.iceberg.java import each
from frazil.errors import SpecError
from frazil.kafka.properties import java_properties
from frazil.kafka.topics import KafkaTopics
from frazil.runtime.broker import EmbeddedBroker
from frazil.runtime.light_jvm import LightJvm
from tests.fixtures.certificates import Authority
from tests.fixtures.jvms import light_jvm
from tests.fixtures.stores.kerberos import REALM, Kdc
from tests.integration.servers import HOST, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TOPIC, USER = "orders", "frazil"
NAME = "localhost"
"""A service's principal has its host's name, which clients look up by the address."""
_DESERIALIZER = "org.apache.kafka.common.serialization.StringDeserializer"


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
        producer = Producer({"bootstrap.servers": addresses["BROKER"], "enable.idempotence": True})
        for number in range(3):
            producer.produce(TOPIC, f'{{"n": {number}}}')
        assert producer.flush(30) == 0
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


@pytest.fixture(scope="module")
def jvm(kerberized: Kerberized) -> Iterator[LightJvm]:
    """With the jars of the driver, which are those of tasks."""
    option = f"-Djava.security.krb5.conf={kerberized.kdc.configuration}"
    with light_jvm(conf={"spark.driver.extraJavaOptions": option}) as running:
        yield running


def read_by_java(jvm: LightJvm, properties: dict[str, str]) -> list[str]:
    """The values of the topic, by the client of Spark's Kafka source."""
    kafka, util = jvm.gateway.jvm.org.apache.kafka, jvm.gateway.jvm.java
    deserializers = {"key.deserializer": _DESERIALIZER, "value.deserializer": _DESERIALIZER}
    consumer = kafka.clients.consumer.KafkaConsumer({**java_properties(properties), **deserializers})
    try:
        partition = kafka.common.TopicPartition(TOPIC, 0)
        consumer.assign([partition])
        consumer.seekToBeginning([partition])
        found: list[str] = []
        for _ in range(30):
            found += [str(record.value()) for record in each(consumer.poll(util.time.Duration.ofSeconds(1)))]
            if len(found) == 3:
                break
        return found
    finally:
        consumer.close()


def test_the_settings_of_the_file_log_java_s_client_in(jvm: LightJvm, kerberized: Kerberized) -> None:
    assert read_by_java(jvm, kerberized.properties) == [f'{{"n": {number}}}' for number in range(3)]
    stranger = {**kerberized.properties, "sasl.kerberos.principal": f"nobody@{REALM}"}
    with pytest.raises(Py4JJavaError) as refused:
        read_by_java(jvm, stranger)
    assert "LoginException" in str(refused.value)


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
    option = f"-Djava.security.krb5.conf={kerberized.kdc.configuration}"
    environment = {**os.environ, "JDK_JAVA_OPTIONS": option}
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    reported = json.loads(checked.stdout)
    if can_log_in:
        assert reported["ok"], reported
        return
    assert checked.returncode == 2
    assert "built without GSSAPI (Kerberos)" in reported["error"]["message"]
    assert "built with libsasl2" in reported["error"]["remedy"]
