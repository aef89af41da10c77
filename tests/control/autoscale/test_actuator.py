"""The actuator against the fake API server: nothing shrinks before it is empty."""

import asyncio

import pytest
from fake_cluster import DEPLOYMENT, SCALES, STATEFULSET, acting
from fake_plane import until

from headrace.control.autoscale import actuator
from headrace.control.autoscale.actuator import GONE_WITHIN_S, SETTLE_S, NotLeading
from headrace.control.autoscale.cluster import COST, DRAIN, REMAINING
from headrace.control.discovery.informer import Refused

IDLE = b"vllm:num_requests_running 0\nvllm:num_requests_waiting 0\n"
BUSY = b"vllm:num_requests_running 1\nvllm:num_requests_waiting 0\n"


async def drain(cluster, hand, desired=2, **more):
    """One step down; the name of the pod that was chosen, when it is drained."""
    await hand.step(desired, **more)
    (victim,) = cluster.marked
    await until(lambda: hand.state(victim) == "drained")
    return victim


async def shrink(cluster, hand, desired=2, **more):
    """Steps down until the count has fallen; the name of the pod that was chosen."""
    victim = await drain(cluster, hand, desired, **more)
    await hand.step(desired, **more)
    await hand.later(SETTLE_S)
    await hand.step(desired, **more)
    return victim


def engine_of(replicas, hand, name):
    return next(one for one in replicas if one.url == hand.member(name).url)


def test_more_is_one_patch_and_enough_is_none():
    async def scenario(cluster, replicas, hand):
        await hand.step(3)
        assert cluster.scaled == []
        await hand.step(5)
        assert cluster.scaled == [5]

    acting(scenario)


def test_the_count_falls_only_when_nothing_has_run_there_for_a_while():
    async def scenario(cluster, replicas, hand):
        victim = await drain(cluster, hand)
        marks = {COST: "-1000", DRAIN: "scaled down", REMAINING: "2"}
        assert cluster.fake.annotations(victim) == marks
        engine = engine_of(replicas, hand, victim)
        await hand.step(2)
        await hand.later(SETTLE_S - 1)
        engine.metrics = BUSY
        await until(lambda: hand.running(victim) == 1)
        await hand.later(60)
        await hand.step(2)
        assert cluster.scaled == [], "its engine still runs a request of another gateway"
        engine.metrics = IDLE
        await until(lambda: hand.running(victim) == 0)
        await hand.step(2)
        await hand.later(SETTLE_S - 1)
        await hand.step(2)
        assert cluster.scaled == []
        await hand.later(1)
        await hand.step(2)
        assert cluster.scaled == [2]
        await hand.step(1)
        assert cluster.scaled == [2] and cluster.marked == [victim], "one at a time"

    acting(scenario)


def test_a_gateway_that_does_not_see_its_own_mark_shrinks_nothing():
    async def scenario(cluster, replicas, hand):
        cluster.fake.is_mute = True
        for _ in range(4):
            await hand.step(2)
            await hand.later(SETTLE_S)
        assert hand.state(*cluster.marked) == "ready" and cluster.scaled == []
        cluster.fake.is_mute = False
        cluster.fake.drop()
        await until(lambda: hand.state(*cluster.marked) == "drained")
        await hand.step(2)
        await hand.later(SETTLE_S)
        await hand.step(2)
        assert cluster.scaled == [2]

    acting(scenario)


def test_the_victim_stays_the_same_whoever_gets_worse():
    async def scenario(cluster, replicas, hand):
        *others, last = (m.pod[1] for m in sorted(hand.members, key=lambda m: m.id))
        cluster.fake.annotate(last, drain="new GPU")
        await until(lambda: hand.state(last) == "drained")
        await hand.step(2)
        for name in others:
            cluster.fake.annotate(name, drain="new rack")
            await until(lambda: hand.state(name) == "drained")  # noqa: B023
        await hand.step(2)
        chosen = [name for name in cluster.marked if REMAINING in cluster.fake.annotations(name)]
        assert chosen == [last]

    acting(scenario)


def test_unknown_gauges_are_not_taken_for_nothing():
    async def scenario(cluster, replicas, hand):
        victim = await drain(cluster, hand)
        engine_of(replicas, hand, victim).metrics = b""
        await until(lambda: hand.running(victim) == -1)
        await hand.step(2)
        await hand.later(290)
        await hand.step(2)
        await hand.later(SETTLE_S)
        await hand.step(2)
        assert cluster.scaled == []
        await hand.later(SETTLE_S)
        await hand.step(2)
        assert cluster.scaled == [2], "the time for a drain has passed"

    acting(scenario)


def test_a_need_that_comes_back_spares_the_victim():
    async def scenario(cluster, replicas, hand):
        victim = await drain(cluster, hand)
        await hand.step(3)
        assert cluster.marked == []
        await until(lambda: hand.state(victim) == "ready")
        assert cluster.scaled == []

    acting(scenario)


def test_a_drain_by_hand_outlasts_that_the_pod_is_spared():
    async def scenario(cluster, replicas, hand):
        cluster.fake.annotate("a-1", drain="new GPU")
        await until(lambda: hand.state("a-1") == "drained")
        await hand.step(2)
        assert cluster.fake.annotations("a-1")[REMAINING] == "2", "nobody misses that one"
        await hand.step(3)
        assert cluster.fake.annotations("a-1") == {DRAIN: "new GPU"}
        cluster.fake.annotate("a-1", drain=None)
        await until(lambda: hand.state("a-1") == "ready")

    acting(scenario)


def test_a_statefulset_loses_its_highest_ordinal_even_if_that_never_served():
    async def scenario(cluster, replicas, hand):
        cluster.put("a-10", "http://127.0.0.1:9", ready=False)
        await hand.step(2, STATEFULSET)
        assert cluster.marked == ["a-10"]
        cluster.delete("a-10")
        await hand.step(2, STATEFULSET)
        assert cluster.marked == ["a-2"]

    acting(scenario, workload=STATEFULSET)


def test_a_last_ordinal_that_is_being_replaced_is_waited_for():
    async def scenario(cluster, replicas, hand):
        cluster.terminate("a-2")
        await hand.step(2, STATEFULSET)
        assert cluster.marked == []

    acting(scenario, workload=STATEFULSET)


def test_a_last_ordinal_that_was_sent_off_is_not_waited_for():
    async def scenario(cluster, replicas, hand):
        assert await shrink(cluster, hand, workload=STATEFULSET) == "a-2"
        cluster.terminate("a-2")
        await hand.step(1, STATEFULSET)
        assert cluster.marked == ["a-1", "a-2"]

    acting(scenario, workload=STATEFULSET)


def test_only_pods_of_the_workload_go():
    async def scenario(cluster, replicas, hand):
        for number in range(2):
            cluster.put(f"a-{number}", replicas[number].url, labels={"app": "other"})
        await until(lambda: len(hand.up.control.registry.members) == 3)
        await hand.step(2)
        assert cluster.marked == ["a-2"]

    acting(scenario)


def test_a_victim_that_was_not_deleted_serves_again():
    async def scenario(cluster, replicas, hand):
        victim = await shrink(cluster, hand)
        await hand.step(2)
        await hand.later(GONE_WITHIN_S - 1)
        await hand.step(2)
        assert cluster.marked == [victim]
        await hand.later(2)
        await hand.step(2)
        assert cluster.marked == []
        await until(lambda: hand.state(victim) == "ready")

    acting(scenario)


def test_growth_does_not_wait_for_a_victim_to_disappear():
    async def scenario(cluster, replicas, hand):
        victim = await shrink(cluster, hand)
        await hand.step(4)
        assert cluster.scaled == [2, 4]
        assert cluster.marked == [victim], "it may be on its way out"
        await hand.step(4)
        assert cluster.marked == [], "it is not: the count includes it again"

    acting(scenario)


def test_a_count_that_somebody_else_changed_is_not_overwritten():
    async def scenario(cluster, replicas, hand):
        await drain(cluster, hand)
        seen = await hand.act.cluster.scale(DEPLOYMENT)
        cluster.fake.set_scale(SCALES[DEPLOYMENT], 6)
        with pytest.raises(Refused, match="409"):
            await hand.act.cluster.set_scale(DEPLOYMENT, seen, 2)
        await hand.step(5)
        assert cluster.fake.annotations(cluster.marked[0])[REMAINING] == "5"
        assert cluster.fake.scales[SCALES[DEPLOYMENT]] == 6

    acting(scenario)


def test_a_gateway_that_has_just_begun_chooses_nobody():
    async def scenario(cluster, replicas, hand):
        autoscale = hand.up.control.config.autoscale
        assert autoscale.down_window_s == 0
        hand.act._began_s += 100  # as if the window were longer than it has run
        await hand.step(2)
        assert cluster.marked == []
        await hand.later(101)
        await hand.step(2)
        assert len(cluster.marked) == 1

    acting(scenario)


def test_who_does_not_lead_changes_nothing():
    async def scenario(cluster, replicas, hand):
        hand.shift_s += 60
        for desired in (2, 5):
            with pytest.raises(NotLeading):
                await hand.step(desired)
        assert (cluster.marked, cluster.scaled) == ([], [])

    acting(scenario)


@pytest.mark.parametrize(
    ("refused", "said"),
    [("scale", "may not get deployments/scale: 403"), ("pods", "may not list pods: 403")],
)
def test_a_refusal_names_verb_and_resource(monkeypatch, caplog, refused, said):
    async def scenario(cluster, replicas, hand):
        cluster.fake.refuse_only, cluster.fake.refuse = refused, (403, {"message": "no"})
        hand.up.control.autoscale.look(0.0)
        monkeypatch.setattr(actuator, "TURN_S", 0.01)
        task = asyncio.ensure_future(hand.act.turn())
        await until(lambda: said in caplog.text)
        await task
        assert "examples/scaling-role.yaml" in caplog.text
        assert cluster.marked == []

    acting(scenario)
