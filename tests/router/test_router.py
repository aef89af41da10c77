import json
import subprocess
import sys
import threading

import pytest

from headrace import (
    HeadraceError,
    Lease,
    NoReplica,
    Overloaded,
    Replica,
    Router,
    RouteRequest,
    UnknownModel,
)
from headrace.core.balancer import POLICIES
from headrace.errors import ConfigError, InvalidJson, InvalidRequest

S = 1_000_000_000
SMALL = 1 << 16


def router_of(count=3, policy="least_load", **settings):
    replicas = [Replica(f"http://h{n}:8000") for n in range(count)]
    return Router(replicas, policy, prefix_table_bytes=SMALL, **settings)


def body(**fields):
    return json.dumps({"messages": [{"role": "user", "content": "hello"}]} | fields).encode()


# ---- the import


def test_the_import_brings_in_no_asyncio_and_no_network():
    program = (
        "import sys; from headrace import Router, RouteRequest, Replica, Lease; "
        "Router([Replica('http://a:1')], prefix_table_bytes=65536)"
        ".route(RouteRequest('m'), 1).cancel(2); "
        "bad = {'asyncio', 'socket', 'ssl', 'aiohttp', 'uvloop', 'logging'}; "
        "sys.exit(bool(bad & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_errors_of_the_library_are_headrace_errors():
    assert all(issubclass(e, HeadraceError) for e in (Overloaded, NoReplica, UnknownModel))


# ---- leases


def test_a_lease_ends_once_and_with_cancels_what_is_open():
    router = router_of(1, max_concurrent_requests=1)
    with router.route(RouteRequest("m"), S) as lease:
        assert isinstance(lease, Lease) and lease.replica.url == "http://h0:8000" and lease.open
        with pytest.raises(Overloaded) as error:
            router.route(RouteRequest("m"), S)
        assert error.value.retry_after_s >= 1
    assert not lease.open
    lease.finish(2 * S)
    lease.fail(2 * S, "cut")
    router.route(RouteRequest("m"), 3 * S).finish(4 * S)


def test_first_token_is_the_first_of_tokens():
    lease = router_of(1).route(RouteRequest("m"), S)
    lease.first_token(S + 5)
    lease.tokens(S + 9, 3)
    assert (lease.taken.first_ns, lease.taken.generated) == (S + 5, 4)
    with pytest.raises(ValueError, match="no such reason"):
        lease.fail(S + 9, "no such reason")
    lease.finish(
        S + 10, {"prompt_tokens": 5, "completion_tokens": 4, "prompt_tokens_details": None}
    )


def test_a_retry_fails_the_lease_and_goes_elsewhere_within_the_budget():
    router = router_of(2, budget_ratio=0, min_per_s=1)
    lease = router.route(RouteRequest("m"), S)
    again = router.retry(lease, S)
    assert again is not None and not lease.open and again.replica != lease.replica
    assert again.start_at_ns > S and again.reason == "retry"
    assert router.retry(lease, S) is None  # it has ended
    assert router.retry(again, S) is None and not again.open  # max_retries is 1
    other = router.route(RouteRequest("m"), S)
    assert router.retry(other, S) is None and not other.open  # the budget is empty


# ---- requests


def test_a_body_says_model_stream_limit_and_session():
    router = router_of(8, "consistent_hash")
    by_body = RouteRequest.from_body(body(model="m", session_id="a", user="b"))
    by_user = RouteRequest.from_body(body(model="m", user="a"))
    by_header = RouteRequest.from_body(body(model="m", user="b"), {"X-Session-Id": "a"})
    by_hand = RouteRequest("m", session="a")
    slots = {router.route(r, S).replica.url for r in (by_body, by_user, by_header, by_hand)}
    assert len(slots) == 1
    bound = RouteRequest.from_body(body(stream=True, max_tokens=7, n=3)).bind(1, "m")
    assert (bound.stream, bound.max_tokens, bound.sequences) == (True, 7, 3)
    assert bound.prompt_tokens >= 1 and not bound.has_session


def test_a_missing_model_is_the_only_one():
    router = router_of(1)
    router.route(RouteRequest.from_body(body()), S)
    router.add(Replica("http://other:1", models=["x", "y"]))
    with pytest.raises(InvalidRequest):
        router.route(RouteRequest.from_body(body()), S)
    with pytest.raises(UnknownModel):
        router.route(RouteRequest("z"), S)
    assert router.route(RouteRequest("y"), S).replica.url == "http://other:1"


def test_bad_bodies_are_the_clients_fault():
    with pytest.raises(InvalidJson):
        RouteRequest.from_body(b"{")
    with pytest.raises(InvalidRequest):
        RouteRequest.from_body(b'{"model": 5}')


def test_a_common_beginning_goes_where_it_is_cached():
    router = router_of(4, "cost_aware")
    text = "all prompts of this tenant begin like this. " * 100
    first = router.route(RouteRequest("m", prompt_tokens=1000, prefix=text), S)
    first.finish(S)
    for n in range(6):
        asked = RouteRequest("m", prompt_tokens=1010, prefix=text + f"question {n}" * 30)
        lease = router.route(asked, (2 + n) * S)
        assert lease.replica == first.replica and lease.hit_tokens > 700
        lease.finish((2 + n) * S)
    other = RouteRequest("x", prefix=text).bind(1, "x").prefix_keys
    assert not set(other) & set(asked.bind(1, "m").prefix_keys)  # another model shares nothing


def test_an_alias_means_the_model_it_names():
    router = router_of(1, model_aliases={"best": "m"})
    assert router.route(RouteRequest("best"), S).replica.url == "http://h0:8000"


# ---- replicas


def test_drained_and_removed_replicas_get_nothing_and_their_leases_end_well():
    router = router_of(2)
    held = [router.route(RouteRequest("m"), S) for _ in range(4)]
    router.drain("http://h0:8000")
    assert {router.route(RouteRequest("m"), S).replica.url for _ in range(3)} == {"http://h1:8000"}
    router.remove("http://h1:8000")
    with pytest.raises(NoReplica):
        router.route(RouteRequest("m"), S)
    for lease in held:
        lease.finish(2 * S)
    router.update("http://h0:8000", state="ready")
    assert router.route(RouteRequest("m"), S).replica.url == "http://h0:8000"
    with pytest.raises(KeyError):
        router.drain("http://h1:8000")


def test_a_replica_that_comes_back_in_mid_request_starts_at_zero():
    router = router_of(1)
    old = router.route(RouteRequest("m"), S)
    router.remove("http://h0:8000")
    router.add(Replica("http://h0:8000"))
    new = router.route(RouteRequest("m"), S)
    assert router.explain(RouteRequest("m"), S)[0]["terms"]["requests"] == 1
    old.finish(2 * S)
    assert router.explain(RouteRequest("m"), 2 * S)[0]["terms"]["requests"] == 1
    new.finish(3 * S)
    assert router.explain(RouteRequest("m"), 3 * S)[0]["terms"]["requests"] == 0


def test_a_slot_is_used_again_only_when_nothing_is_in_flight():
    router = router_of(1)
    held = router.route(RouteRequest("m"), S)
    for n in range(1200):
        router.remove(f"http://h{n}:8000")
        router.add(Replica(f"http://h{n + 1}:8000"))
    assert held.open
    held.finish(2 * S)


def test_the_load_of_others_counts_once_and_is_smoothed():
    router = router_of(2, "least_load", foreign_smoothing_s=10)
    held = [router.route(RouteRequest("m"), S) for _ in range(4)]
    router.update("http://h0:8000", running=2 + 5, waiting=0, now_ns=S)  # two of them ours

    def foreign(now):
        return router.explain(RouteRequest("m"), now)[0]["terms"]["foreign_sequences"]

    assert foreign(S) == 5
    router.update("http://h0:8000", running=2, waiting=0, now_ns=11 * S)
    assert foreign(11 * S) == pytest.approx(5 / 2.71828, rel=1e-3)
    router.update("http://h0:8000", running=float("nan"), waiting=-1, now_ns=12 * S)
    assert len(held) == 4


def test_explain_names_every_replica_and_changes_nothing():
    router = router_of(3, "cost_aware")
    router.drain("http://h2:8000")
    rows = router.explain(RouteRequest("m", prompt_tokens=500), S)
    assert [row["id"] for row in rows] == ["h0:8000", "h1:8000", "h2:8000"]
    assert [row["eligible"] for row in rows] == [True, True, False]
    assert rows[2]["why"] and rows[2]["score"] is None and not rows[0]["why"]
    assert sum(row["chosen"] for row in rows) == 1
    parts = ("step_s", "pending_s", "prefill_s", "balance_s", "kv_s", "uncached_s")
    assert rows[0]["score"] == pytest.approx(sum(rows[0]["terms"][name] for name in parts))
    assert rows == router.explain(RouteRequest("m", prompt_tokens=500), S)


def test_equal_seeds_break_ties_alike():
    def choices(seed):
        router = Router(
            [Replica(f"http://h{n}:1") for n in range(5)], "random", seed, prefix_table_bytes=SMALL
        )
        return [router.route(RouteRequest("m"), S).replica.url for _ in range(20)]

    assert choices(1) == choices(1) != choices(2)


# ---- bad input


@pytest.mark.parametrize(
    "replicas",
    [
        [Replica("http://a:1"), Replica("http://A:1/")],
        [Replica("ftp://a")],
        [Replica("http://a:1", weight=-1)],
        [Replica("http://a:1", weight=float("nan"))],
        [Replica(f"http://a:{n + 1}") for n in range(1100)],
    ],
)
def test_bad_replicas_are_refused_with_a_reason(replicas):
    with pytest.raises(ConfigError):
        Router(replicas, prefix_table_bytes=SMALL)


def test_a_replica_too_many_names_the_limit():
    with pytest.raises(ConfigError, match="1024"):
        Router([Replica(f"http://a:{n + 1}") for n in range(1100)], prefix_table_bytes=SMALL)


def test_unknown_settings_and_bad_values_are_refused_with_the_nearest_key():
    with pytest.raises(ConfigError, match="load_factor"):
        router_of(load_facto=2)
    with pytest.raises(ConfigError, match="overload_ratio"):
        router_of(overload_ratio=-3)
    with pytest.raises(ConfigError, match="policy"):
        router_of(policy="best")


@pytest.mark.parametrize("policy", POLICIES)
def test_zero_weights_everywhere_are_equal_and_beside_others_are_none(policy):
    replicas = [Replica(f"http://h{n}:1", weight=0) for n in range(3)]
    router = Router(replicas, policy, prefix_table_bytes=SMALL)
    asked = [RouteRequest("m", session=f"s{n}", prompt_tokens=10) for n in range(60)]
    assert len({router.route(r, S).replica.url for r in asked}) == 3
    router.add(Replica("http://heavy:1"))
    assert {router.route(r, S).replica.url for r in asked} == {"http://heavy:1"}


@pytest.mark.parametrize("key", ["", "x", "ä" * 10_000, "\0\n\r", b"\xff\xfe" * 999])
def test_keys_of_any_length_and_bytes(key):
    router = router_of(4, "consistent_hash")
    asked = RouteRequest("m", session=key, prefix=key)
    urls = set()
    for _ in range(3):
        lease = router.route(asked, S)
        urls.add(lease.replica.url)
        lease.cancel(S)
    assert len(urls) == 1 or not key


def test_no_replica_at_all():
    with pytest.raises(UnknownModel):
        Router([], prefix_table_bytes=SMALL).route(RouteRequest("m"), S)


def test_routers_in_threads_do_not_meet():
    found = []

    def work(seed):
        router = router_of(3, "round_robin")
        leases = [router.route(RouteRequest("m"), S) for _ in range(300)]
        found.append({x.replica.url: 0 for x in leases}.keys() and len(leases))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [300] * 4


# ---- what engines tell of their caches


def chat(text):
    return RouteRequest.from_body(body(model="m", messages=[{"role": "user", "content": text}]))


def hits(router, request):
    return [row["terms"]["hit_tokens"] for row in router.explain(request, 5 * S)]


def test_a_cache_that_somebody_else_filled_is_known_until_it_drops_the_prompt():
    router = router_of(2, "cost_aware")
    asked = chat("water under the bridge " * 60)
    keys = router.prefix_keys(asked)
    assert len(keys) == 5 and router.prefix_keys(chat("short")) == []
    router.take_cache("http://h1:8000", stored=keys, stored_tokens=350)
    assert hits(router, asked)[0] == 0 and hits(router, asked)[1] > 250
    router.take_cache("http://h1:8000", removed=keys[2:])
    assert 0 < hits(router, asked)[1] < 120
    router.update("http://h1:8000", generation=1)
    router.update("http://h1:8000", generation=2)
    assert hits(router, asked) == [0, 0]


def test_tokens_of_others_age_what_was_used_before_them():
    router = router_of(1, "cost_aware")
    router.update("http://h0:8000", kv_capacity_tokens=6400)
    asked = chat("water under the bridge " * 60)
    router.take_cache("http://h0:8000", stored=router.prefix_keys(asked), stored_tokens=350)
    fresh = hits(router, asked)[0]
    for _ in range(50):
        router.take_cache("http://h0:8000", stored_tokens=65)
    assert 0 < hits(router, asked)[0] < fresh
    for _ in range(60):
        router.take_cache("http://h0:8000", stored_tokens=65)
    assert hits(router, asked) == [0]


def test_a_replica_that_is_not_here_has_no_cache():
    with pytest.raises(KeyError):
        router_of(1).take_cache("http://other:1")
