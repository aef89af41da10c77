import itertools

import pytest
from fake_api import endpoint_slice, pod

from headrace.control.discovery.slices import replicas

SELECTOR = {"app": "vllm"}
LABELS = {"app": "vllm"}


def urls(slices, pods=(), **more):
    return [r.url for r in replicas(slices, pods, SELECTOR, **more)]


@pytest.mark.parametrize(
    ("conditions", "serves"),
    [
        ({"ready": True}, True),
        ({}, True),
        ({"ready": None}, True),
        ({"ready": False}, False),
        ({"ready": False, "serving": True, "terminating": True}, False),
        ({"ready": True, "terminating": True}, False),
    ],
)
def test_conditions_decide_whether_an_endpoint_serves(conditions, serves):
    part = endpoint_slice("s", [("10.0.0.1", None, conditions)], labels=LABELS)
    assert urls([part]) == (["http://10.0.0.1:8000"] if serves else [])


def test_a_slice_counts_by_its_labels_or_by_those_of_its_pods():
    other = endpoint_slice("other", [("10.0.0.9", "other-0", {})], labels={"app": "db"})
    ours = endpoint_slice("ours", [("10.0.0.1", "vllm-0", {})])
    pods = [pod("vllm-0", "10.0.0.1", labels=LABELS), pod("other-0", "10.0.0.9")]
    assert urls([other, ours], pods) == ["http://10.0.0.1:8000"]


def test_a_pod_of_two_services_and_two_address_families_is_one_replica():
    pods = [pod("a", "10.0.0.1", labels=LABELS), pod("b", "10.0.0.2", labels=LABELS)]

    def part(name, addresses, **more):
        named = [(address, own, {}) for address, own in zip(addresses, "ab", strict=True)]
        return endpoint_slice(name, named, **more)

    four, six = ["10.0.0.1", "10.0.0.2"], ["fd00::1", "fd00::2"]
    metrics = part("metrics", four, port=9090)
    both = ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    for slices in itertools.permutations([metrics, part("v4", four), part("v6", six)]):
        assert urls(slices, pods) == both
    other = part("other-port", six, labels=LABELS, port=8001)
    for slices in itertools.permutations([metrics, part("v4", four), other]):
        assert urls(slices, pods) == ["http://[fd00::1]:8001", "http://[fd00::2]:8001"]


def test_the_service_that_is_meant_says_whether_its_pod_serves():
    pods = [pod("a", "10.0.0.1", labels=LABELS)]
    unready = endpoint_slice("ours", [("10.0.0.1", "a", {"ready": False})], labels=LABELS)
    metrics = endpoint_slice("metrics", [("10.0.0.1", "a", {"ready": True})], port=9090)
    moved = endpoint_slice("ours-2", [("10.0.0.1", "a", {"ready": True})], labels=LABELS)
    assert urls([unready, metrics], pods) == urls([metrics, unready], pods) == []
    assert urls([unready, moved], pods) == urls([moved, unready], pods) == ["http://10.0.0.1:8000"]


def test_pods_without_a_service_count_when_they_are_ready():
    pods = [
        pod("a", "10.0.0.1", labels=LABELS),
        pod("b", "10.0.0.2", labels=LABELS, ready=False),
        pod("c", "10.0.0.3", labels=LABELS, ready=None),
        pod("d", "10.0.0.4", labels=LABELS, deletionTimestamp="2026-01-01T00:00:01Z"),
    ]
    assert urls([], pods) == ["http://10.0.0.1:8000"]


def test_a_pod_that_a_slice_calls_not_ready_is_not_taken_by_its_own_word():
    part = endpoint_slice("s", [("10.0.0.1", "a", {"ready": False})], labels=LABELS)
    assert urls([part], [pod("a", "10.0.0.1", labels=LABELS)]) == []


def test_annotations_and_the_exporter_of_the_node_are_taken_over():
    annotations = {
        "headrace.io/models": "m, m-lora",
        "headrace.io/weight": "0.5",
        "headrace.io/port": "9000",
        "headrace.io/gpus": "0,GPU-abc",
        "headrace.io/max-concurrency": "64",
    }
    exporter = pod("dcgm-x", "10.0.1.1", labels={"app.kubernetes.io/name": "dcgm-exporter"})
    (found,) = replicas(
        [], [pod("a", "10.0.0.1", labels=LABELS, annotations=annotations), exporter], SELECTOR
    )
    assert found.url == "http://10.0.0.1:9000"
    assert found.models == ("m", "m-lora")
    assert (found.weight, found.max_concurrency) == (0.5, 64)
    assert found.gpus == (0, "GPU-abc")
    assert found.dcgm_url == "http://10.0.1.1:9400/metrics"
    assert found.labels == {"kubernetes.namespace": "ns", "kubernetes.pod": "a"}


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("scaled down", "scaled down"),
        ("", "drained by an annotation"),
        ("two\nlines\x1b[31m", "two lines [31m"),
        ("x" * 999, "x" * 200),
        ("false", None),
        (None, None),
    ],
)
def test_an_annotation_drains_and_its_text_is_the_reason(said, reason):
    annotations = {} if said is None else {"headrace.io/drain": said}
    (found,) = replicas(
        [], [pod("a", "10.0.0.1", labels=LABELS, annotations=annotations)], SELECTOR
    )
    assert found.drain == reason


def test_two_pods_with_one_address_the_younger_has_it(caplog):
    old = pod("old", "10.0.0.1", labels=LABELS, annotations={"headrace.io/weight": "0.1"})
    new = pod("new", "10.0.0.1", labels=LABELS, creationTimestamp="2026-01-02T00:00:00Z")
    for pods in ([old, new], [new, old]):
        (found,) = replicas([], pods, SELECTOR)
        assert found.labels["kubernetes.pod"] == "new"
    assert "claimed by" in caplog.text


def test_nonsense_in_one_pod_costs_only_that_pod(caplog):
    bad = pod("bad", "not an address", labels=LABELS)
    weird = pod("weird", "10.0.0.2", labels=LABELS, annotations={"headrace.io/weight": "-3"})
    good = pod("good", "fd00::1", labels=LABELS, annotations={"headrace.io/port": "eleven"})
    assert urls([], [bad, weird, good]) == ["http://[fd00::1]:8000"]
    assert "not usable" in caplog.text


def test_an_empty_selector_matches_nothing():
    part = endpoint_slice("s", [("10.0.0.1", None, {})], labels=LABELS)
    assert replicas([part], [], {}) == ()


@pytest.mark.parametrize("text", ["inf", "-inf", "nan", "1e999", "²", ""])
@pytest.mark.parametrize("name", ["weight", "port", "max-concurrency", "gpus"])
def test_annotations_that_are_no_numbers_do_no_harm(name, text):
    odd = pod("a", "10.0.0.1", labels=LABELS, annotations={f"headrace.io/{name}": text})
    plain = pod("b", "10.0.0.2", labels=LABELS)
    assert "http://10.0.0.2:8000" in urls([], [odd, plain])
