"""The chart and the plain manifests: valid for Kubernetes, and what matters about a pod of Frazil's."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from docs.scan import ROOT
from frazil.spec import load_spec
from tests.fixtures.helm import helm

DEPLOY = ROOT / "deploy"
CHART = DEPLOY / "helm/frazil"
_VERSIONS = ("1.29", "1.37")
_TLS = 'http: {listen: "0.0.0.0:9000", tls: {certificate: a, key: b}}\n'


def rendered(*words: str, pipeline: str = "", tmp_path: Path | None = None) -> str:
    """What Helm makes of the chart, or its error."""
    program = helm()
    if program is None:
        pytest.skip("there is no helm: install it (make test-setup fetches it for Linux on x86-64)")
    if tmp_path is not None:
        (tmp_path / "frazil.yaml").write_text(pipeline)
        words = (*words, "--set-file", f"pipeline={tmp_path / 'frazil.yaml'}")
    # Of the person who runs the tests nothing is read: neither a cluster nor plugins.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("KUBE", "HELM"))}
    command = [str(program), "template", "shop", str(CHART), "--namespace", "shop", *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    return ended.stdout if ended.returncode == 0 else ended.stderr


def objects(text: str) -> dict[str, Any]:
    return {found["kind"]: found for found in yaml.safe_load_all(text) if found}


def pod(found: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = found["Deployment"]["spec"]["template"]["spec"]
    return spec


PLAIN = (DEPLOY / "kubernetes/frazil.yaml").read_text()


@pytest.mark.parametrize("version", _VERSIONS)
def test_the_manifests_are_valid_for_kubernetes(version: str) -> None:
    for found in objects(PLAIN).values():
        kubernetes_validate.validate(found, version, strict=True)


def test_the_manifests_are_what_the_chart_makes_of_their_values() -> None:
    assert PLAIN.split("\n", 1)[1] == rendered("--values", str(DEPLOY / "kubernetes/frazil-values.yaml"))


def test_the_pipeline_file_of_the_manifests_is_one(tmp_path: Path) -> None:
    file = tmp_path / "frazil.yaml"
    text = objects(PLAIN)["ConfigMap"]["data"]["frazil.yaml"]
    mounts = {mount["mountPath"] for mount in pod(objects(PLAIN))["containers"][0]["volumeMounts"]}
    assert "${file:/run/secrets/kafka/password}" in text
    assert "/run/secrets/kafka" in mounts
    (tmp_path / "password").write_text("hush")
    file.write_text(text.replace("/run/secrets/kafka", str(tmp_path)))
    assert load_spec(file, {}).pipeline == "shop"


def test_a_container_can_change_nothing_but_its_work_folder_and_has_no_rights() -> None:
    found = pod(objects(PLAIN))
    assert (found["securityContext"]["runAsNonRoot"], found["automountServiceAccountToken"]) == (True, False)
    for container in (*found["initContainers"], *found["containers"]):
        rights = container["securityContext"]
        assert (rights["readOnlyRootFilesystem"], rights["allowPrivilegeEscalation"]) == (True, False)
        assert rights["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
    writable = {mount["mountPath"] for mount in found["containers"][0]["volumeMounts"] if not mount.get("readOnly")}
    assert writable == {"/var/lib/frazil", "/tmp"}


def test_secrets_are_references_only() -> None:
    assert "Secret" not in objects(PLAIN)
    container = pod(objects(PLAIN))["containers"][0]
    assert "env" not in container
    assert [volume["secret"]["secretName"] for volume in pod(objects(PLAIN))["volumes"] if "secret" in volume] == [
        "kafka"
    ]


def test_a_pod_has_longer_to_end_than_a_batch_has_to_be_committed() -> None:
    found = pod(objects(rendered("--set", "pipeline=a: b,graceSeconds=100")))
    assert found["containers"][0]["args"][-2:] == ["--grace", "100s"]
    assert found["terminationGracePeriodSeconds"] > 100


def test_one_pod_ends_before_the_next_begins() -> None:
    deployment = objects(PLAIN)["Deployment"]["spec"]
    assert (deployment["replicas"], deployment["strategy"]) == (1, {"type": "Recreate"})


def test_pods_that_stand_by_are_rolled_one_by_one_on_different_nodes(tmp_path: Path) -> None:
    found = objects(rendered("--set", "replicas=2", pipeline="pipeline: p\nha: {}\n", tmp_path=tmp_path))
    deployment = found["Deployment"]["spec"]
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    assert (deployment["replicas"], deployment["strategy"]) == (2, strategy)
    [preferred] = pod(found)["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    labels = deployment["template"]["metadata"]["labels"]
    assert preferred["podAffinityTerm"]["labelSelector"] == {"matchLabels": labels}
    assert found["PodDisruptionBudget"]["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    for one in found.values():
        kubernetes_validate.validate(one, _VERSIONS[0], strict=True)


@pytest.mark.parametrize("pipeline", ["pipeline: p\n", "ha: {elect: none}\n"])
def test_several_pods_need_an_election(pipeline: str, tmp_path: Path) -> None:
    assert "several replicas need an election" in rendered("--set", "replicas=2", pipeline=pipeline, tmp_path=tmp_path)


def test_an_election_by_kubernetes_has_the_rights_that_it_needs(tmp_path: Path) -> None:
    file = "ha: {elect: kubernetes}\n"
    found = objects(rendered("--set", "serviceAccount.name=lake", pipeline=file, tmp_path=tmp_path))
    assert pod(found)["automountServiceAccountToken"] is True
    [rule] = found["Role"]["rules"]
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}
    assert rule == leases
    assert found["RoleBinding"]["roleRef"]["name"] == found["Role"]["metadata"]["name"]
    assert found["RoleBinding"]["subjects"] == [{"kind": "ServiceAccount", "name": "lake", "namespace": "shop"}]
    for one in found.values():
        kubernetes_validate.validate(one, _VERSIONS[-1], strict=True)
    assert "Role" not in objects(PLAIN)


def test_a_service_account_is_made_for_a_role_of_the_cloud(tmp_path: Path) -> None:
    words = ("--set", "serviceAccount.create=true,serviceAccount.annotations.role=lake")
    found = objects(rendered(*words, pipeline="ha: {elect: kubernetes}\n", tmp_path=tmp_path))
    account = found["ServiceAccount"]
    assert (account["metadata"]["name"], account["metadata"]["annotations"]) == ("frazil-shop", {"role": "lake"})
    assert pod(found)["serviceAccountName"] == "frazil-shop"
    assert found["RoleBinding"]["subjects"][0]["name"] == "frazil-shop"
    named = objects(rendered(*words, "--set", "serviceAccount.name=own", pipeline="a: b\n", tmp_path=tmp_path))
    assert (named["ServiceAccount"]["metadata"]["name"], pod(named)["serviceAccountName"]) == ("own", "own")
    kubernetes_validate.validate(account, _VERSIONS[-1], strict=True)
    assert "ServiceAccount" not in objects(PLAIN)


def test_variables_are_those_of_the_container(tmp_path: Path) -> None:
    words = ("--set", "env[0].name=A,env[0].value=b,envFrom[0].secretRef.name=kafka")
    found = objects(rendered(*words, pipeline="a: b\n", tmp_path=tmp_path))
    container = pod(found)["containers"][0]
    assert (container["env"], container["envFrom"]) == (
        [{"name": "A", "value": "b"}],
        [{"secretRef": {"name": "kafka"}}],
    )
    kubernetes_validate.validate(found["Deployment"], _VERSIONS[-1], strict=True)


def test_a_pod_may_have_labels_and_volumes_of_its_own(tmp_path: Path) -> None:
    volume = "volumes[0].name=krb,volumes[0].secret.secretName=keytab"
    mount = "volumeMounts[0].name=krb,volumeMounts[0].mountPath=/krb"
    found = objects(rendered("--set", f"podLabels.team=data,{volume},{mount}", pipeline="a: b\n", tmp_path=tmp_path))
    assert found["Deployment"]["spec"]["template"]["metadata"]["labels"]["team"] == "data"
    assert pod(found)["volumes"][-1] == {"name": "krb", "secret": {"secretName": "keytab"}}
    assert pod(found)["containers"][0]["volumeMounts"][-1] == {"name": "krb", "mountPath": "/krb"}
    kubernetes_validate.validate(found["Deployment"], _VERSIONS[-1], strict=True)


def test_an_ingress_leads_to_a_service_that_can_be_reached(tmp_path: Path) -> None:
    words = ("--set", "ingress.enabled=true,ingress.host=shop.example,ingress.tlsSecret=shop-tls")
    found = objects(rendered(*words, pipeline=_TLS, tmp_path=tmp_path))
    [rule] = found["Ingress"]["spec"]["rules"]
    assert rule["http"]["paths"][0]["backend"]["service"]["name"] == found["Service"]["metadata"]["name"]
    kubernetes_validate.validate(found["Ingress"], _VERSIONS[-1], strict=True)
    assert "does not reach a service on loopback" in rendered(*words, pipeline="a: b\n", tmp_path=tmp_path)


def test_the_operator_of_prometheus_scrapes_with_a_token_and_has_the_alerts(tmp_path: Path) -> None:
    words = (
        "--set",
        "serviceMonitor.enabled=true,serviceMonitor.tokenSecret.name=frazil-http,prometheusRule.enabled=true",
    )
    found = objects(rendered(*words, pipeline=_TLS, tmp_path=tmp_path))
    monitor, service = found["ServiceMonitor"]["spec"], found["Service"]
    assert monitor["selector"]["matchLabels"] == service["metadata"]["labels"]
    assert service["metadata"]["labels"][monitor["jobLabel"]] == "frazil", "the alerts ask for this job"
    [endpoint] = monitor["endpoints"]
    assert (endpoint["port"], endpoint["scheme"], endpoint["path"]) == ("http", "https", "/metrics")
    assert endpoint["authorization"]["credentials"] == {"name": "frazil-http", "key": "read"}
    rules = yaml.safe_load((DEPLOY / "prometheus/frazil.rules.yaml").read_text())
    assert found["PrometheusRule"]["spec"] == rules


def test_the_alerts_of_the_chart_are_those_of_prometheus() -> None:
    shipped = (DEPLOY / "prometheus/frazil.rules.yaml").read_text()
    assert (CHART / "files/frazil.rules.yaml").read_text() == shipped


@pytest.mark.parametrize(
    ("pipeline", "words", "error"),
    [
        ("a: b\n", "serviceMonitor.enabled=true", "Prometheus does not reach a service on loopback"),
        (_TLS, "serviceMonitor.enabled=true", "serviceMonitor.tokenSecret.name is the Secret"),
        ("a: b\n", "serviceMonitor.enable=true", "serviceMonitor"),
    ],
)
def test_a_monitor_that_could_not_work_is_refused(pipeline: str, words: str, error: str, tmp_path: Path) -> None:
    assert error in rendered("--set", words, pipeline=pipeline, tmp_path=tmp_path)


def test_a_network_policy_lets_in_own_pods_and_those_that_are_named(tmp_path: Path) -> None:
    closed = objects(rendered("--set", "networkPolicy.enabled=true", pipeline=_TLS, tmp_path=tmp_path))["NetworkPolicy"]
    labels = closed["spec"]["podSelector"]
    assert (closed["spec"]["policyTypes"], closed["spec"]["ingress"]) == (
        ["Ingress"],
        [{"from": [{"podSelector": labels}]}],
    )
    words = "networkPolicy.enabled=true,networkPolicy.from[0].podSelector.matchLabels.a=b"
    words += ",networkPolicy.egress[0].ports[0].port=9092"
    opened = objects(rendered("--set", words, pipeline=_TLS, tmp_path=tmp_path))["NetworkPolicy"]
    assert opened["spec"]["policyTypes"] == ["Ingress", "Egress"]
    scraped = {"from": [{"podSelector": {"matchLabels": {"a": "b"}}}], "ports": [{"protocol": "TCP", "port": 9000}]}
    assert opened["spec"]["ingress"][1] == scraped
    for policy in (closed, opened):
        kubernetes_validate.validate(policy, _VERSIONS[0], strict=True)
    assert "NetworkPolicy" not in objects(PLAIN)


def test_probes_ask_inside_of_the_pod_while_the_service_listens_there_alone() -> None:
    container = pod(objects(PLAIN))["containers"][0]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert f'"http://localhost:8787{path}"' in container[probe]["exec"]["command"][-1]
    assert "Service" not in objects(PLAIN)


def test_probes_and_a_service_use_tls_where_the_pipeline_file_has_it(tmp_path: Path) -> None:
    found = objects(rendered(pipeline=_TLS, tmp_path=tmp_path))
    container = pod(found)["containers"][0]
    for probe, path in (("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")):
        assert container[probe]["httpGet"] == {"path": path, "port": "http", "scheme": "HTTPS"}
    assert container["ports"] == [{"name": "http", "containerPort": 9000}]
    assert found["Service"]["spec"]["ports"][0]["port"] == 9000
    for one in found.values():
        kubernetes_validate.validate(one, _VERSIONS[-1], strict=True)


def test_probes_ask_inside_of_the_pod_with_tls_on_loopback_too(tmp_path: Path) -> None:
    for listen in ("", "listen: '[::1]:9000', ", "listen: 'localhost:9000', ", "listen: '127.0.0.2:9000', "):
        pipeline = f"http: {{{listen}tls: {{certificate: a, key: b}}}}\n"
        found = objects(rendered(pipeline=pipeline, tmp_path=tmp_path))
        command = pod(found)["containers"][0]["livenessProbe"]["exec"]["command"][-1]
        assert f'"https://localhost:{9000 if listen else 8787}/healthz"' in command
        compile(command, "probe", "exec")
        assert "Service" not in found


def test_a_secret_may_have_any_name_that_kubernetes_allows(tmp_path: Path) -> None:
    name = f"lake.{'x' * 100}.kafka"
    found = pod(
        objects(
            rendered("--set", f"secrets={{{name.replace('.', chr(92) + '.')}}}", pipeline="a: b", tmp_path=tmp_path)
        )
    )
    [volume] = [one for one in found["volumes"] if "secret" in one]
    assert volume["secret"]["secretName"] == name
    assert re.fullmatch("[a-z0-9-]{1,63}", volume["name"])
    mounts = {mount["name"]: mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
    assert mounts[volume["name"]] == f"/run/secrets/{name}"


@pytest.mark.parametrize("pipeline", ["http: true\n", "http: {}\n", "pipeline: p\n"])
def test_the_default_address_is_asked_where_the_pipeline_file_names_none(pipeline: str, tmp_path: Path) -> None:
    found = pod(objects(rendered(pipeline=pipeline, tmp_path=tmp_path)))
    assert found["containers"][0]["ports"] == [{"name": "http", "containerPort": 8787}]


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        ("http: false\n", "the pod's probes need the HTTP service: leave `http: false` out of the pipeline file"),
        ("a: [\n", "pipeline is no YAML"),
        ("", "- pipeline: String length must be greater than or equal to 1"),
    ],
)
def test_a_file_that_no_pod_can_run_is_refused(pipeline: str, message: str, tmp_path: Path) -> None:
    assert message in rendered(pipeline=pipeline, tmp_path=tmp_path)


def test_a_changed_pipeline_file_starts_another_pod() -> None:
    sums = [
        objects(rendered("--set", f"pipeline={text}"))["Deployment"]["spec"]["template"]["metadata"]["annotations"]
        for text in ("a: b", "a: c")
    ]
    assert sums[0] != sums[1]
