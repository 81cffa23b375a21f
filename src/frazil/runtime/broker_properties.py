"""The configuration of a single-node KRaft broker that starts quickly, stays small and listens on the loopback only."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

HOST = "127.0.0.1"
_MESSAGE_MAX_BYTES = 20 * 1024 * 1024


def broker_properties(directory: Path, port: int, controller_port: int, overrides: Mapping[str, str]) -> dict[str, str]:
    """Returns the properties of the broker in `directory`; `overrides` win."""
    return {**_network(port, controller_port), **_storage(directory), **_single_node(), **overrides}


def render(properties: Mapping[str, str]) -> str:
    """Returns the text of a Java properties file in ASCII: Java reads its bytes as Latin-1."""
    text = "".join(f"{key}={value}\n" for key, value in properties.items())
    return "".join(one if one.isascii() else _units(one) for one in text.replace("\\", "\\\\"))


def _units(character: str) -> str:
    """Returns a character as one or two escaped UTF-16 units."""
    raw = character.encode("utf-16-be")
    return "".join(f"\\u{raw[at : at + 2].hex()}" for at in range(0, len(raw), 2))


def _network(port: int, controller_port: int) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"BROKER://{HOST}:{port}",
        "listener.security.protocol.map": "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "BROKER",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "message.max.bytes": str(_MESSAGE_MAX_BYTES),
        "replica.fetch.max.bytes": str(_MESSAGE_MAX_BYTES),
        "fetch.max.bytes": str(3 * _MESSAGE_MAX_BYTES),
    }


def _storage(directory: Path) -> dict[str, str]:
    # Kafka maps every index of every partition at its full size: the default of 10 MiB each is too much for 200 topics.
    return {
        "log.dirs": str(directory / "data"),
        "log.index.size.max.bytes": str(1024 * 1024),
        "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
        "auto.create.topics.enable": "false",
    }


def _single_node() -> dict[str, str]:
    return {
        "offsets.topic.replication.factor": "1",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "4",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "share.coordinator.state.topic.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
        # After a SIGKILL the controller refuses the broker until its old session ends; the default is 9 s.
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "200",
    }
