"""A segment and balancers over it, with all settings at their defaults, for tests of the core."""

from headrace.config import Admission, Retry, Routing
from headrace.core.balancer import Balancer, Verdict
from headrace.core.explanation import explain
from headrace.core.request import RouteRequest
from headrace.core.segment import Segment

S = 1_000_000_000
MS = 1_000_000
MODEL, GROUP = 1, 1


def settings(**given):
    found = {}
    for section in (Routing(), Admission(), Retry()):
        found.update({name: getattr(section, name) for name in section.__struct_fields__})
    return found | given


class Rig:
    """`processes` balancers over one segment, replicas 0 … n-1 behind one model."""

    def __init__(self, replicas=4, processes=1, prefix_bytes=1 << 20, **given):
        self.segment = Segment.create(processes, prefix_bytes)
        self.generations = [1] * replicas
        for slot in range(replicas):
            self.row(slot)
        self.balancers = [Balancer(self.segment, p, settings(**given)) for p in range(processes)]
        self.reader = Balancer(self.segment, processes, settings(**given))
        for b in (*self.balancers, self.reader):
            for slot in range(replicas):
                b.books.set_replica(slot, f"replica-{slot}:8000")
            b.books.set_model(MODEL, GROUP, range(replicas), range(1, replicas + 1))
        self.now = 100 * S

    def row(self, slot, **given):
        values = {"eligible": True, "max_concurrency": 1000, "generation": self.generations[slot]}
        self.segment.write_row(slot, **{**values, **given})

    def restart(self, slot, **given):
        self.generations[slot] += 1
        self.row(slot, **given)

    def open(self, process=0, after_ms=2, **given):
        self.now += after_ms * MS
        return self.balancers[process].open(request(**given), self.now)

    def lease(self, process=0, after_ms=2, **given):
        verdict, lease = self.open(process, after_ms, **given)
        assert verdict == Verdict.ROUTED
        return lease

    def explain(self, **given):
        self.now += 2 * MS
        return explain(self.reader, request(**given), self.now)


def request(prompt_tokens=1000.0, prefix=(), session=None, stream=True, **given):
    asked = RouteRequest()
    asked.model = MODEL
    asked.prompt_tokens = prompt_tokens
    asked.stream = stream
    asked.set_prefix(list(prefix))
    if session is not None:
        asked.offer(0, session)
    for name, value in given.items():
        setattr(asked, name, value)
    return asked
