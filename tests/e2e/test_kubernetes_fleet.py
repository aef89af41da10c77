"""The gateway with Kubernetes discovery under load; API server and fleet misbehave."""

import asyncio
import contextlib
import itertools
import json
import signal
import threading
import time

import pytest
import yaml
from fake_api import FakeApi, endpoint_slice
from gateway_process import Command, free_port, free_ports, get
from load_threads import Load

pytest.importorskip("kubernetes_asyncio", reason="headrace[kubernetes] is missing")
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(150)]

LABELS = {"app": "vllm"}
COUNT = 3


class ApiThread:
    """A fake API server in a loop of its own; `do` calls one of its methods there."""

    def __init__(self):
        self.fake = FakeApi()
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)

    def __enter__(self):
        self.thread.start()
        self._wait(self.fake.start())
        return self

    def __exit__(self, *_):
        self.do("drop")
        self._wait(self.fake.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(5)

    def _wait(self, work):
        asyncio.run_coroutine_threadsafe(work, self.loop).result(10)

    def do(self, name, *words, **more):
        async def call():
            getattr(self.fake, name)(*words, **more)

        self._wait(call())


class Cluster:
    """A mock fleet in EndpointSlices, and a gateway that follows them."""

    def __init__(self, api, folder):
        self.api = api
        self.first = free_ports(COUNT + 2)
        self.port, self.admin = self.first + COUNT, self.first + COUNT + 1
        self.folder = folder

    def slice(self, number, **conditions):
        endpoints = [("127.0.0.1", None, {"ready": True, **conditions})]
        return endpoint_slice(f"s{number}", endpoints, labels=LABELS, port=self.first + number)

    def __enter__(self):
        words = ("--replicas", str(COUNT), "--port", str(self.first), "--speedup", "2")
        self.mock = Command("mock", "--model", "tiny", *words)
        try:
            self.mock.wait_line(b"headrace mock ready", 60)
            return self.start_gateway()
        except BaseException:
            self.mock.stop()
            raise

    def start_gateway(self):
        for number in range(COUNT):
            self.api.do("put", "endpointslices", self.slice(number))
        self.gateway = Command(
            *("serve", "--service-discovery", "--selector", "app=vllm"),
            *("--service-discovery-namespace", "ns", "--host", "127.0.0.1", "--processes", "1"),
            *("--port", str(self.port), "--admin-port", str(self.admin)),
        )
        self.gateway.wait_line(b"headrace ready", 60)
        self.until(lambda: self.states() == ["ready"] * COUNT)
        models = f"http://127.0.0.1:{self.port}/v1/models"
        self.until(lambda: b'"tiny"' in get(models))  # the data plane follows within 50 ms
        return self

    def __exit__(self, *_):
        self.gateway.stop()
        self.mock.stop()

    def until(self, condition, timeout_s=30.0):
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, self.replicas()
            time.sleep(0.05)

    def replicas(self):
        found = json.loads(get(f"http://127.0.0.1:{self.admin}/replicas"))["replicas"]
        return {r["id"]: r for r in found}

    def states(self):
        return sorted(r["state"] for r in self.replicas().values())

    def id(self, number):
        return f"127.0.0.1:{self.first + number}"

    def stream(self, into):
        """Read one stream of some seconds to its end."""
        body = {"model": "tiny", "prompt": "hello", "max_tokens": 1200, "stream": True}
        url = f"http://127.0.0.1:{self.port}/v1/completions"
        into.append(get(url, json.dumps(body).encode(), 60))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster")
    with contextlib.ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        api = stack.enter_context(ApiThread())
        kubeconfig = {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
            "clusters": [{"name": "it", "cluster": {"server": api.fake.url}}],
            "users": [{"name": "it", "user": {}}],
        }
        (folder / "kubeconfig").write_text(yaml.safe_dump(kubeconfig))
        patch.setenv("KUBECONFIG", str(folder / "kubeconfig"))
        patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
        yield stack.enter_context(Cluster(api, folder))


@pytest.mark.parametrize("seconds", [8, pytest.param(60, marks=pytest.mark.slow)])
def test_a_flapping_api_server_loses_no_request(cluster, seconds):
    refusals = itertools.cycle([(500, {}), None, (403, {}), None, (410, {}), None])
    with Load(cluster.port, 3, True) as load:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            cluster.api.fake.refuse = next(refusals)
            cluster.api.do("error", 410)
            cluster.api.do("drop")
            time.sleep(0.4)
        cluster.api.fake.refuse = None
    assert load.failures == []
    assert load.done > 10 * seconds
    assert cluster.states() == ["ready"] * COUNT
    assert cluster.api.fake.watches > seconds / 2


def test_a_drain_by_scale_down_breaks_no_stream(cluster):
    read = []
    streams = [threading.Thread(target=cluster.stream, args=(read,)) for _ in range(9)]
    victim = cluster.id(2)
    for thread in streams:
        thread.start()
    cluster.until(lambda: cluster.replicas()[victim]["inflight"] >= 2)
    with Load(cluster.port, 2, True) as load:
        leaving = cluster.slice(2, ready=False, serving=True, terminating=True)
        cluster.api.do("put", "endpointslices", leaving)
        cluster.until(lambda: cluster.replicas()[victim]["state"] == "draining")
        assert cluster.replicas()[victim]["inflight"] >= 1
        for thread in streams:
            thread.join(60)
        cluster.until(lambda: victim not in cluster.replicas())
        cluster.api.do("delete", "endpointslices", "s2")
        time.sleep(0.3)
    assert load.failures == []
    assert [text[-14:] for text in read] == [b"data: [DONE]\n\n"] * len(streams)
    cluster.api.do("put", "endpointslices", cluster.slice(2))
    cluster.until(lambda: cluster.states() == ["ready"] * COUNT)


def test_a_missed_delete_is_repaired_at_the_next_list(cluster):
    with Load(cluster.port, 2, True) as load:
        cluster.api.do("delete", "endpointslices", "s1", silent=True)
        time.sleep(0.5)
        assert cluster.id(1) in cluster.replicas(), "nobody was told yet"
        cluster.api.do("drop")
        cluster.until(lambda: cluster.id(1) not in cluster.replicas())
    assert load.failures == []
    page = get(f"http://127.0.0.1:{cluster.admin}/metrics")
    assert b'headrace_discovered_replicas{source="kubernetes"} 2' in page
    cluster.api.do("put", "endpointslices", cluster.slice(1))
    cluster.until(lambda: cluster.states() == ["ready"] * COUNT)


def test_a_selector_that_matches_nothing_shows_zero(cluster):
    for number in range(COUNT):
        cluster.api.do("delete", "endpointslices", f"s{number}")
    metric = b'headrace_discovered_replicas{source="kubernetes"} 0'
    cluster.until(lambda: metric in get(f"http://127.0.0.1:{cluster.admin}/metrics"))
    for number in range(COUNT):
        cluster.api.do("put", "endpointslices", cluster.slice(number))
    cluster.until(lambda: cluster.states() == ["ready"] * COUNT)


def test_a_gateway_that_is_told_to_stop_gives_the_lease_back_before_it_has_drained(
    cluster, tmp_path
):
    entry = {"model": "tiny", "workload": "deployment/vllm", "min_replicas": COUNT}
    tree = {
        "server": {
            **{"host": "127.0.0.1", "port": free_port(), "admin_port": free_port()},
            **{"processes": 0, "drain_settle_s": 2},
        },
        "discovery": {"kubernetes": {"enabled": True, "namespace": "ns", "selector": LABELS}},
        "autoscale": {"models": [entry]},
    }
    (tmp_path / "headrace.yaml").write_text(yaml.safe_dump(tree))

    def holder():
        lease = cluster.api.fake.leases.get("headrace-autoscale")
        return lease and lease["spec"]["holderIdentity"]

    gateway = Command("serve", "--config", str(tmp_path / "headrace.yaml"))
    try:
        gateway.wait_line(b"headrace ready", 60)
        cluster.until(holder)
        admin = tree["server"]["admin_port"]
        told = lambda: json.loads(get(f"http://127.0.0.1:{admin}/autoscale"))  # noqa: E731
        cluster.until(lambda: told()["leader"])
        assert told()["holder"] == holder()
        gateway.process.send_signal(signal.SIGTERM)
        cluster.until(lambda: holder() == "")
        assert gateway.process.poll() is None, "it still settles"
        assert gateway.process.wait(15) == 0
    finally:
        gateway.stop()
