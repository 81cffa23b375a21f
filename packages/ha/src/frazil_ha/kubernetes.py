"""Elections by a Lease of Kubernetes (`coordination.k8s.io/v1`): the claim is in its annotations, life is its `renewTime`.

A Lease is changed only in the version that was read (`resourceVersion`), so one claim follows another. As in client-go, its
end is judged by how long this process has seen no renewal, never by comparing clocks.
"""

from __future__ import annotations

import datetime
import re
import ssl
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2 as httpx

from frazil.clock import Clock, SystemClock
from frazil.errors import SpecError, UnavailableError
from frazil_ha.elector import Claim, read_claim

LEASE_S = 15
"""How long after its last renewal a holder counts as alive."""
_RENEW_S = 2.0
_TIMEOUT_S = 5.0
_CLAIM = "frazil/claim"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class LeaseElector:
    """Implements the port `Elector` with the Lease `frazil-<pipeline>` in the pod's own namespace."""

    kind = "kubernetes"
    poll_s = _RENEW_S

    def __init__(
        self, environment: Mapping[str, str], pipeline: str, name: str, account: Path = _SERVICE_ACCOUNT
    ) -> None:
        """environment: has KUBERNETES_SERVICE_HOST and _PORT. account: the folder of the pod's service account."""
        self._server = (environment.get("KUBERNETES_SERVICE_HOST"), environment.get("KUBERNETES_SERVICE_PORT", "443"))
        self._account = account
        self._lease = "frazil-" + re.sub(r"[^a-z0-9.-]+", "-", pipeline.lower())
        self._name = name
        self._clock: Clock = SystemClock()
        self._client: httpx.Client | None = None
        self._leases = ""
        #: The Lease as last read; empty where there is none.
        self._document: dict[str, Any] = {}
        #: The renewal that was last seen, and when.
        self._renewed: tuple[object, float] = (None, 0.0)
        self._opened_s = self._clock.monotonic_s()

    def check(self) -> str:
        self.prepare()
        self._read()
        new = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": self._lease}, "spec": {}}
        trials = (("POST", self._leases, new), ("PUT", f"{self._leases}/{self._lease}", self._document or new))
        for method, path, lease in trials:  # The API server answers as if it made the change.
            self._ask(method, f"{path}?dryRun=All", lease)
        return f"lease {self._lease}, which this service account may {'update' if self._document else 'create'}"

    def prepare(self) -> None:
        if self._client is not None:
            return
        host, port = self._server
        namespace, authority = self._account / "namespace", self._account / "ca.crt"
        if not host or not namespace.exists():
            remedy = "run it in a pod with a service account, or elect by `kafka`"
            raise SpecError("`ha.elect: kubernetes` is for processes in a cluster", remedy=remedy, where="ha")
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace.read_text().strip()}/leases"
        url = f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}"
        self._client = httpx.Client(
            base_url=url, verify=ssl.create_default_context(cafile=str(authority)), timeout=_TIMEOUT_S
        )

    def newest(self) -> Claim | None:
        claim = self._read()
        if claim is not None and claim.name == self._name:
            # The holder too, as this process may have left and come back.
            self._document["spec"] |= {"renewTime": self._now(), "holderIdentity": self._name}
            self._put(self._document)
        return claim

    def _read(self) -> Claim | None:
        try:
            answer = self._ask("GET", f"{self._leases}/{self._lease}")
            self._document = {} if answer.status_code == 404 else answer.json()
            renewed = self._document.get("spec", {}).get("renewTime")
            if renewed != self._renewed[0]:
                self._renewed = renewed, self._clock.monotonic_s()
            text = self._document.get("metadata", {}).get("annotations", {}).get(_CLAIM)
            return read_claim(text, int(self._document["spec"].get("leaseTransitions", 0))) if text else None
        except ValueError:
            message, remedy = "the lease has no claim that can be read", "delete the lease; a leader claims again"
            raise UnavailableError(message, remedy=remedy, where=f"lease {self._lease}") from None

    def claim(self, mine: Claim, after: Claim | None) -> bool:
        if self._read() != after:
            return False
        number = int(self._document.get("spec", {}).get("leaseTransitions", 0)) + 1
        now = self._now()
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                **self._document.get("metadata", {"name": self._lease}),
                "annotations": {**self._document.get("metadata", {}).get("annotations", {}), _CLAIM: mine.text()},
            },
            "spec": {
                "holderIdentity": mine.name,
                "leaseDurationSeconds": LEASE_S,
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": number,
            },
        }
        if self._document:
            return self._put(lease)
        return self._ask("POST", self._leases, lease).status_code == 201

    def is_present(self, claim: Claim) -> bool:
        self._read()
        is_released = self._document.get("spec", {}).get("holderIdentity") != claim.name
        return not is_released and self._clock.monotonic_s() - max(self._renewed[1], self._opened_s) < LEASE_S

    def close(self) -> None:
        if self._client is None:
            return
        with suppress(UnavailableError, SpecError):
            claim = self._read()
            if claim is not None and claim.name == self._name:
                self._document["spec"]["holderIdentity"] = ""
                self._put(self._document)
        self._client.close()
        self._client = None

    def _put(self, lease: Mapping[str, Any]) -> bool:
        """Replaces the Lease in the version that was read. Returns whether nobody was quicker."""
        return self._ask("PUT", f"{self._leases}/{self._lease}", lease).status_code == 200

    def _now(self) -> str:
        now = datetime.datetime.fromtimestamp(self._clock.now_ms() / 1000, datetime.UTC)
        return now.isoformat(timespec="microseconds").replace("+00:00", "Z")

    def _ask(self, method: str, path: str, lease: Mapping[str, Any] | None = None) -> httpx.Response:
        assert self._client is not None
        where = f"lease {self._lease}"
        try:
            # The token is read each time: the cluster renews it.
            headers = {"Authorization": f"Bearer {(self._account / 'token').read_text().strip()}"}
            answer = self._client.request(method, path, json=lease, headers=headers)
        except (httpx.HTTPError, OSError) as error:
            remedy = "Frazil retries; look at the API server of the cluster"
            raise UnavailableError(f"Kubernetes cannot elect a leader: {error}", remedy=remedy, where=where) from None
        if answer.status_code in (401, 403):
            remedy = "bind a role with get, create and update on leases of coordination.k8s.io to the service account"
            raise SpecError("the service account may not use its lease", remedy=remedy, where=where)
        if answer.status_code not in (200, 201, 404, 409):
            remedy = "Frazil retries; look at the API server of the cluster"
            message = f"Kubernetes cannot elect a leader: HTTP status {answer.status_code}"
            raise UnavailableError(message, remedy=remedy, where=where)
        return answer
