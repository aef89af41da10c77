"""The gateway against a real kube-apiserver and etcd, where both are on PATH.

EndpointSlices of Kubernetes may not hold loopback addresses; give the tests another one with
`unshare --net sh -c 'ip link set lo up; ip addr add 10.99.0.1/32 dev lo; pytest …'`.
"""

import contextlib
import json
import socket
import threading
import time
from pathlib import Path

import pytest
import yaml
from gateway_process import Command, free_port, free_ports, get
from load_threads import Load
from real_api import NOBODY, PODS, READER, SLICES, RealApi, missing, until

pytest.importorskip("kubernetes_asyncio", reason="headrace[kubernetes] is missing")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(missing()), reason=f"not on PATH: {', '.join(missing())}"),
]

RBAC = Path(__file__).parents[2] / "deploy" / "kubernetes"
NS = "headrace"
COUNT = 3
LABELS = {"app": "vllm"}
IN_NS = SLICES.format(NS)
PODS_NS = PODS.format(NS)


def address():
    """Where the mock replicas listen."""
    with contextlib.suppress(OSError), socket.socket() as probe:
        probe.bind(("10.99.0.1", 0))
        return "10.99.0.1"
    return "127.0.0.1"


HOST = address()


def grant(api, path, user):
    """The roles of a manifest, for a user instead of the service account."""
    rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{NS}"
    for document in yaml.safe_load_all(path.read_text()):
        if document["kind"] == "Role":
            api.make(f"{rights}/roles", document)
        elif document["kind"] == "RoleBinding":
            document["subjects"] = [{"kind": "User", "name": user}]
            api.make(f"{rights}/rolebindings", document)


def slice_of(number, port, **conditions):
    endpoint = {"addresses": [HOST], "conditions": {"ready": True, **conditions}}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": f"s{number}", "labels": LABELS},
        "addressType": "IPv4",
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }


def pod_of(name, port, **annotations):
    container = {"name": "vllm", "image": "vllm", "ports": [{"containerPort": port}]}
    said = {f"headrace.io/{key.replace('_', '-')}": value for key, value in annotations.items()}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": LABELS, "annotations": said},
        "spec": {"nodeName": "gpu-1", "containers": [container]},
    }


READY = {
    "status": {
        "phase": "Running",
        "podIP": HOST,
        "podIPs": [{"ip": HOST}],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
}


COST = "controller.kubernetes.io/pod-deletion-cost"
SCALE = f"/apis/apps/v1/namespaces/{NS}/deployments/vllm/scale"
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "vllm"},
    "spec": {
        "replicas": 3,
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {"containers": [{"name": "vllm", "image": "vllm"}]},
        },
    },
}
AUTOSCALE = {
    "down_window_s": 1,
    "models": [{"model": "tiny", "min_replicas": 1, "workload": "deployment/vllm"}],
}


class Cluster:
    """A mock fleet, and a gateway that follows the real API server."""

    def __init__(self, api):
        self.api = api
        self.first = free_ports(COUNT + 2)
        self.port, self.admin = self.first + COUNT, self.first + COUNT + 1

    def __enter__(self):
        words = ("--replicas", str(COUNT), "--port", str(self.first), "--host", HOST)
        self.mock = Command("mock", "--model", "tiny", "--speedup", "2", *words)
        try:
            self.mock.wait_line(b"headrace mock ready", 60)
            for number in range(COUNT):
                self.api.make(IN_NS, slice_of(number, self.first + number))
            self.gateway = self.serve(READER, self.port, self.admin)
        except BaseException:
            self.mock.stop()
            raise
        self.wait_ready(COUNT)
        models = f"http://127.0.0.1:{self.port}/v1/models"
        until(lambda: b'"tiny"' in get(models))  # the data plane follows within 50 ms
        return self

    def __exit__(self, *_):
        self.gateway.stop()
        self.mock.stop()

    def serve(self, token, port, admin, *more):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("KUBECONFIG", self.api.kubeconfig(token))
            patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
            gateway = Command(
                *("serve", "--service-discovery", "--selector", "app=vllm", *more),
                *("--service-discovery-namespace", NS, "--host", "127.0.0.1"),
                *("--port", str(port), "--admin-port", str(admin), "--processes", "1"),
            )
        gateway.wait_line(b"headrace ready", 60)
        return gateway

    def replicas(self):
        found = json.loads(get(f"http://127.0.0.1:{self.admin}/replicas"))["replicas"]
        return {r["id"]: r for r in found}

    def wait_ready(self, count):
        until(lambda: [r["state"] for r in self.replicas().values()] == ["ready"] * count, 60)

    def id(self, number):
        return f"{HOST}:{self.first + number}"


@pytest.fixture(scope="module")
def api(tmp_path_factory):
    with RealApi(tmp_path_factory.mktemp("api"), [free_port() for _ in range(3)]) as api:
        api.make("/api/v1/namespaces", {"metadata": {"name": NS}})
        grant(api, RBAC / "base" / "rbac.yaml", "reader")
        yield api


@pytest.fixture(scope="module")
def cluster(api):
    with Cluster(api) as cluster:
        yield cluster


def test_slices_come_go_and_drain_by_watch(cluster, api):
    read = []

    def stream():
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 1200, "stream": True}
        url = f"http://127.0.0.1:{cluster.port}/v1/completions"
        read.append(get(url, json.dumps(body).encode(), 60))

    victim = cluster.id(2)
    streams = [threading.Thread(target=stream) for _ in range(9)]
    for thread in streams:
        thread.start()
    until(lambda: cluster.replicas()[victim]["inflight"] >= 2)
    with Load(cluster.port, 2, True) as load:
        leaving = slice_of(2, cluster.first + 2, ready=False, serving=True, terminating=True)
        api.patch(f"{IN_NS}/s2", {"endpoints": leaving["endpoints"]})
        until(lambda: cluster.replicas()[victim]["state"] == "draining")
        for thread in streams:
            thread.join(60)
        until(lambda: victim not in cluster.replicas())
        api.remove(f"{IN_NS}/s2")
        api.remove(f"{IN_NS}/s1")
        until(lambda: cluster.id(1) not in cluster.replicas())
    assert load.failures == []
    assert [text[-14:] for text in read] == [b"data: [DONE]\n\n"] * len(streams)
    for number in (1, 2):
        api.make(IN_NS, slice_of(number, cluster.first + number))
    cluster.wait_ready(COUNT)


def test_a_pod_by_label_with_annotations_becomes_a_replica_and_drains(cluster, api):
    api.remove(f"{IN_NS}/s2")
    until(lambda: cluster.id(2) not in cluster.replicas())
    api.make(PODS_NS, pod_of("vllm-0", cluster.first + 2, weight="0.5"))
    time.sleep(0.5)
    assert cluster.id(2) not in cluster.replicas(), "it has no address and is not ready"
    api.patch(f"{PODS_NS}/vllm-0/status", READY)
    cluster.wait_ready(COUNT)
    found = cluster.replicas()[cluster.id(2)]
    assert found["weight"] == 0.5
    assert found["labels"] == {"kubernetes.namespace": NS, "kubernetes.pod": "vllm-0"}
    assert api.call("DELETE", f"{PODS_NS}/vllm-0?gracePeriodSeconds=60")[0] == 200
    assert api.call("GET", f"{PODS_NS}/vllm-0")[1]["metadata"]["deletionTimestamp"]
    until(lambda: cluster.id(2) not in cluster.replicas())
    api.remove(f"{PODS_NS}/vllm-0")
    api.make(IN_NS, slice_of(2, cluster.first + 2))
    cluster.wait_ready(COUNT)


def test_an_api_server_that_dies_and_returns_loses_no_request(cluster, api):
    with Load(cluster.port, 3, True) as load:
        for _ in range(2):
            api.stop(kill=True)
            time.sleep(2)
            assert len(cluster.replicas()) == COUNT
            api.start()
            time.sleep(2)
        api.compact()
        api.stop()
        api.start()
        api.patch(f"{IN_NS}/s2", {"metadata": {"labels": {"app": "other"}}})
        until(lambda: cluster.id(2) not in cluster.replicas(), 60)
        api.patch(f"{IN_NS}/s2", {"metadata": {"labels": LABELS}})
        cluster.wait_ready(COUNT)
    assert load.failures == []
    assert load.done > 50


def test_what_is_forbidden_is_named(cluster, api):
    gateway = cluster.serve(NOBODY, free_port(), free_port())
    try:
        for resource in ("endpointslices.discovery.k8s.io", "pods"):
            gateway.wait_line(f"may not list {resource}: 403 {resource} is forbidden".encode())
            gateway.wait_line(f"grant the verb list on {resource}".encode())
    finally:
        gateway.stop()


def test_two_gateways_shrink_a_deployment_with_the_rights_of_the_example(cluster, api, tmp_path):
    grant(api, RBAC / "examples" / "scaling-role.yaml", "reader")
    names = [f"vllm-{letter}" for letter in "abc"]
    for number, name in enumerate(names):
        api.remove(f"{IN_NS}/s{number}")
        api.make(PODS_NS, pod_of(name, cluster.first + number))
        api.patch(f"{PODS_NS}/{name}/status", READY)
    api.make(f"/apis/apps/v1/namespaces/{NS}/deployments", DEPLOYMENT)
    config = tmp_path / "headrace.yaml"
    config.write_text(yaml.safe_dump({"autoscale": AUTOSCALE}))
    ports = [(free_port(), free_port()) for _ in range(2)]
    with contextlib.ExitStack() as stack:
        for port, admin in ports:
            gateway = cluster.serve(READER, port, admin, "--config", str(config))
            stack.callback(gateway.stop)
        for left in (2, 1):
            until(lambda left=left: api.call("GET", SCALE)[1]["spec"]["replicas"] == left, 90)
            (victim,) = [pod for pod in pods_left(api) if marks(pod).get(COST) == "-1000"]
            name = victim["metadata"]["name"]
            assert marks(victim)["headrace.io/drain"]
            for _, admin in ports:
                assert states(admin)[name] in ("draining", "drained")
            api.remove(f"{PODS_NS}/{name}")
        time.sleep(3)
        assert api.call("GET", SCALE)[1]["spec"]["replicas"] == 1
        told = [json.loads(get(f"http://127.0.0.1:{admin}/autoscale")) for _, admin in ports]
    assert sorted(one["leader"] for one in told) == [False, True]
    lease = api.call("GET", f"/apis/coordination.k8s.io/v1/namespaces/{NS}/leases")[1]["items"]
    assert [one["metadata"]["name"] for one in lease] == ["headrace-autoscale"]


def pods_left(api):
    return api.call("GET", PODS_NS)[1]["items"]


def marks(pod):
    return pod["metadata"].get("annotations") or {}


def states(admin):
    """The state of each replica by the name of its pod."""
    found = json.loads(get(f"http://127.0.0.1:{admin}/replicas"))["replicas"]
    return {r["labels"].get("kubernetes.pod"): r["state"] for r in found}
