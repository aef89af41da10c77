"""One gateway leads, whatever fails; clocks are moved by hand."""

import asyncio
import contextlib
import itertools
import types

import pytest
from fake_api import FakeApi
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.config import Kubernetes
from headrace.control.autoscale import cluster
from headrace.control.autoscale.cluster import Cluster
from headrace.control.autoscale.leadership import LEASE_S, NAME, RENEW_WITHIN_S, Leadership
from headrace.control.discovery.informer import Refused

client = pytest.importorskip("kubernetes_asyncio.client", reason="headrace[kubernetes] is missing")


class Clock:
    def __init__(self):
        self.now_s = 1000.0

    def __call__(self):
        return self.now_s


def competing(scenario, count=2):
    """Run `scenario(fake, clock, candidates)`."""

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            fake = FakeApi()
            await fake.start()
            stack.push_async_callback(fake.stop)
            api = client.ApiClient(client.Configuration(host=fake.url))
            stack.push_async_callback(api.close)
            calls, clock = Cluster(lambda: Kubernetes(namespace="ns"), api), Clock()
            await scenario(fake, clock, [Leadership(calls, clock) for _ in range(count)])

    asyncio.run(run())


def holder(fake):
    return fake.leases[NAME]["spec"]["holderIdentity"]


def test_the_first_leads_and_the_others_know_who(monkeypatch):
    monkeypatch.setenv("HOSTNAME", "headrace-7d4b9-x2v5q")

    async def scenario(fake, clock, candidates):
        one, other = candidates
        assert not one.leads
        await one.renew()
        await other.renew()
        assert (one.leads, other.leads) == (True, False)
        assert one.holder == other.holder == holder(fake) == one.identity
        assert one.identity.startswith("headrace-7d4b9-x2v5q_") and one.identity != other.identity

    competing(scenario)


def test_who_renews_goes_on_leading():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        for _ in range(20):
            await one.renew()
            await other.renew()
            assert (one.leads, other.leads) == (True, False)
            clock.now_s += RENEW_WITHIN_S - 1
        spec = fake.leases[NAME]["spec"]
        assert spec["leaseTransitions"] == 0
        assert spec["renewTime"] > spec["acquireTime"]

    competing(scenario)


def test_who_cannot_renew_stops_before_anybody_takes_over():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        await one.renew()
        await other.renew()
        fake.refuse = (500, {})
        clock.now_s += RENEW_WITHIN_S - 0.1
        await one.renew()
        assert one.leads and "500" in one.trouble
        clock.now_s += 0.1
        assert not one.leads
        fake.refuse = None
        clock.now_s += LEASE_S - RENEW_WITHIN_S - 0.1
        await other.renew()
        assert not other.leads
        clock.now_s += 0.1
        await other.renew()
        assert other.leads and fake.leases[NAME]["spec"]["leaseTransitions"] == 1
        await one.renew()
        assert not one.leads and one.holder == other.identity

    competing(scenario)


def test_an_answer_that_never_comes_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(cluster, "CALL_S", 0.05)

    async def scenario(fake, clock, candidates):
        fake.lease_delay_s = 60
        await candidates[0].renew()
        assert (candidates[0].leads, candidates[0].trouble) == (False, "no answer in time")

    competing(scenario)


def test_the_time_of_a_renewal_counts_from_its_beginning():
    async def scenario(fake, clock, candidates):
        store = fake._store_lease

        def slow(lease):
            clock.now_s += 4
            return store(lease)

        fake._store_lease = slow
        await candidates[0].renew()
        assert candidates[0].remaining_s == RENEW_WITHIN_S - 4

    competing(scenario)


@pytest.mark.parametrize("is_there", [False, True])
def test_of_two_that_try_at_once_one_leads(is_there):
    async def scenario(fake, clock, candidates):
        if is_there:
            await candidates[0].renew()
            await candidates[0].release()
        await asyncio.gather(*[one.renew() for one in candidates])
        assert sum(one.leads for one in candidates) == 1
        assert [one.trouble for one in candidates] == [""] * 5

    competing(scenario, count=5)


def test_a_clean_stop_hands_over_at_once():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        await one.renew()
        await other.renew()
        await other.release()
        assert holder(fake) == one.identity, "nobody gives away what another one holds"
        await one.release()
        assert not one.leads and holder(fake) == ""
        await other.renew()
        assert other.leads and not one.leads

    competing(scenario)


def test_a_wish_that_comes_in_between_keeps_no_lease_from_being_given_back():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        await one.renew()
        calls = one._leases

        class Between:
            """Another gateway writes between the first look and the answer to it."""

            replace_lease = calls.replace_lease
            is_first = True

            async def lease(self, name):
                found = await calls.lease(name)
                if self.is_first:
                    self.is_first = False
                    await other.renew()
                return found

        one._leases = Between()
        await one.release()
        assert holder(fake) == ""

    competing(scenario)


def test_no_answer_keeps_nobody_from_stopping():
    async def scenario(fake, clock, candidates):
        await candidates[0].renew()
        fake.refuse = (500, {})
        await candidates[0].release()
        assert not candidates[0].leads

    competing(scenario)


def test_times_of_other_clocks_and_labels_say_nothing():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        await one.renew()
        await other.renew()
        fake.leases[NAME]["spec"]["renewTime"] = "2001-01-01T00:00:00.000000Z"
        await other.renew()
        assert not other.leads
        fake.leases[NAME]["metadata"]["labels"] = {"team": "a"}
        await one.renew()
        assert one.leads and fake.leases[NAME]["metadata"]["labels"] == {"team": "a"}

    competing(scenario)


def test_who_follows_says_what_it_wants_and_who_leads_hears_it():
    async def scenario(fake, clock, candidates):
        one, other = candidates
        await one.renew()
        for wanted in ({"m": 3}, {"m": 4}):
            other.wants = wanted
            await other.renew()
            await one.renew()
            assert one.wishes.most(clock.now_s) == wanted and one.leads
        fake.lease_calls.clear()
        await other.renew()
        assert fake.lease_calls == ["get"], "it has just said so"
        for _ in range(30):
            clock.now_s += 5
            await other.renew()
            await one.renew()
            assert one.leads and one.wishes.most(clock.now_s) == {"m": 4}
        for _ in range(7):
            clock.now_s += 5
            await one.renew()
        assert one.wishes.most(clock.now_s) == {}
        assert fake.leases[NAME]["metadata"]["annotations"] == {}

    competing(scenario)


def test_wishes_keep_no_dead_leader_in_office():
    async def scenario(fake, clock, candidates):
        _, *others = candidates
        for one in candidates:
            await one.renew()
        for step in range(LEASE_S):
            assert not any(one.leads for one in others)
            clock.now_s += 1
            for one in others:
                one.wants = {"m": step}
                await one.renew()
        assert sum(one.leads for one in others) == 1

    competing(scenario, count=3)


@pytest.mark.parametrize("verb", ["get", "create"])
def test_a_forbidden_verb_is_named_with_its_resource_and_role_once(verb, caplog):
    async def scenario(fake, clock, candidates):
        fake.refuse_only = "leases"
        if verb == "get":
            fake.refuse = (403, {"message": "no"})
        else:

            def forbid(lease):
                fake.refuse = (403, {"message": "no"})
                return fake._refusal("leases")

            fake._store_lease = forbid
        (one,) = candidates
        for _ in range(3):
            fake.refuse = fake.refuse if verb == "get" else None
            await one.renew()
        assert not one.leads
        assert one.trouble.startswith(f"may not {verb} leases.coordination.k8s.io: 403")
        assert caplog.text.count("deploy/kubernetes/examples/scaling-role.yaml") == 1

    competing(scenario, count=1)


@types.coroutine
def travel():
    """A message on its way: nothing goes on before the test says so. It may get lost."""
    if (yield):
        raise OSError("no connection")


class Memory:
    """A Lease that is kept here; questions and answers travel."""

    def __init__(self):
        self.kept = None
        self.versions = itertools.count(1)

    async def lease(self, name):
        await travel()
        found = self.kept and {**self.kept, "metadata": dict(self.kept["metadata"])}
        await travel()
        return found

    async def create_lease(self, lease):
        await self._write(lease, None)

    async def replace_lease(self, lease):
        await self._write(lease, lease["metadata"]["resourceVersion"])

    async def _write(self, lease, version):
        await travel()
        fits = (self.kept and self.kept["metadata"]["resourceVersion"]) == version
        if fits:
            self.kept = {**lease, "metadata": {"resourceVersion": str(next(self.versions))}}
        await travel()
        if not fits:
            raise Refused(409, "update", "leases", "")


class Steps:
    """Candidates that take one step when they are told to."""

    def __init__(self):
        self.clock, memory = Clock(), Memory()
        self.candidates = [Leadership(memory, self.clock) for _ in range(2)]
        self.works = [None] * 2

    def take(self, who, what="renew", is_lost=False):
        """Begin, or let the message that is on its way arrive or get lost."""
        work, message = self.works[who], is_lost
        if work is None:
            work, message = getattr(self.candidates[who], what)(), None
        try:
            work.send(message)
            self.works[who] = work
        except StopIteration:
            self.works[who] = None

    def finish(self, who):
        while self.works[who] is not None:
            self.take(who)

    @property
    def leaders(self):
        return sum(one.leads for one in self.candidates)


STEPS = st.tuples(
    st.integers(0, 1),  # who
    st.sampled_from(["renew", "renew", "one message", "one message", "lost", "release"]),
    st.sampled_from([0.0, 0.0, 1.0, LEASE_S - RENEW_WITHIN_S, RENEW_WITHIN_S - 1, LEASE_S]),
)


@settings(max_examples=400)
@given(st.lists(STEPS, min_size=10, max_size=40))
def test_two_never_lead_at_a_time_and_one_does_in_the_end(steps):
    group = Steps()
    for who, what, pause_s in steps:
        group.clock.now_s += pause_s
        if what in ("renew", "release"):
            group.finish(who)
            group.take(who, what)
            group.finish(who)
        else:
            group.take(who, is_lost=what == "lost")
        assert group.leaders <= 1
    for pause_s in (0, LEASE_S, 0):
        group.clock.now_s += pause_s
        for who in range(2):
            group.finish(who)
            group.take(who)
            group.finish(who)
            assert group.leaders <= 1
    assert group.leaders == 1
