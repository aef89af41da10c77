"""`/_control`: faults and repairs on request, with what they do to a real replica.

`POST {"replica": INDEX | "all", "action": NAME, …}`; without `replica` it is the one whose port was
asked. `GET` shows every replica's state. The control is also on the DCGM port, which outlives them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import orjson

from headrace.mock import asks
from headrace.mock.api_errors import ApiError
from headrace.mock.hardware import ENGINE_KILLING_XIDS, Gpu
from headrace.mock.http import Reply, Request
from headrace.mock.replica import Replica, State

Wishes = dict[str, Any]


def refusal(message: str) -> ApiError:
    return ApiError(400, message, "BadRequestError")


def number(wishes: Wishes, name: str, default: float, least: float = 0.0) -> float:
    """A number among the wishes, not below `least`."""
    value = wishes.get(name, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not value >= least:
        raise refusal(f"{name} is {value!r}, wanted a number from {least} on")
    return float(value)


def down_s(wishes: Wishes) -> float | None:
    """Seconds after which a replica that went down comes back; None: only by `restart`."""
    return number(wishes, "down_s", 0.0) if "down_s" in wishes else None


def gpus_of(replica: Replica, wishes: Wishes) -> list[Gpu]:
    """The replica's GPU named by `gpu`, an index within it, or all of them."""
    gpus = replica.hardware.gpus
    if "gpu" not in wishes:
        return gpus
    which = wishes["gpu"]
    if not isinstance(which, int) or not 0 <= which < len(gpus):
        raise refusal(f"gpu is {which!r}, the replica has {len(gpus)}")
    return [gpus[which]]


def slow(replica: Replica, wishes: Wishes) -> None:
    factor = number(wishes, "factor", 2.0, 0.01)
    replica.driver.engine.set_slow(replica.driver.now_ns(), factor)


def throttle(replica: Replica, wishes: Wishes) -> None:
    """Heat: one GPU slows down within `ramp_s`, and the whole group with it."""
    factor = number(wishes, "factor", 2.5, 0.01)
    ramp_ns = int(number(wishes, "ramp_s", 10.0) * 1e9) + 1
    for gpu in gpus_of(replica, wishes):
        gpu.heat = factor
    hottest = max(gpu.heat for gpu in replica.hardware.gpus)
    replica.driver.engine.set_heat(replica.driver.now_ns(), hottest, ramp_ns)


def freeze(replica: Replica, wishes: Wishes) -> None:
    if replica.state is State.UP:
        replica.freeze()


def unfreeze(replica: Replica, wishes: Wishes) -> None:
    if replica.state is State.UP:
        replica.unfreeze()


def kill(replica: Replica, wishes: Wishes) -> None:
    """The engine process dies; with `"what": "server"` the whole process, without a word."""
    if wishes.get("what", "engine") == "server":
        replica.crash(down_s(wishes))
    else:
        replica.kill_engine(down_s(wishes))


def sigterm(replica: Replica, wishes: Wishes) -> None:
    replica.stop(0.0, down_s(wishes))


def drain(replica: Replica, wishes: Wishes) -> None:
    """SIGTERM to a server that was started with a shutdown time-out."""
    replica.stop(number(wishes, "timeout_s", 20.0, 0.001), down_s(wishes))


def xid(replica: Replica, wishes: Wishes) -> None:
    """Some XIDs also take the engine down; `"kill": false` or true overrules that."""
    code = int(number(wishes, "code", 79, 1))
    for gpu in gpus_of(replica, {"gpu": 0, **wishes}):
        gpu.raise_xid(code)
    if wishes.get("kill", code in ENGINE_KILLING_XIDS):
        replica.kill_engine(down_s(wishes))


def ecc(replica: Replica, wishes: Wishes) -> None:
    for gpu in gpus_of(replica, {"gpu": 0, **wishes}):
        gpu.single_bit_errors += int(number(wishes, "single", 0))
        gpu.double_bit_errors += int(number(wishes, "double", 0))


def nvlink(replica: Replica, wishes: Wishes) -> None:
    """One GPU's links keep `ratio` of their bandwidth; the group slows down by `factor`."""
    for gpu in gpus_of(replica, {"gpu": 0, **wishes}):
        gpu.nvlink_ratio = number(wishes, "ratio", 0.01)
    slow(replica, {"factor": wishes.get("factor", 3.0)})


def repair(replica: Replica, wishes: Wishes) -> None:
    """New GPUs, full speed; a replica that is down stays down."""
    replica.hardware.repair()
    if replica.state is State.UP:
        unfreeze(replica, {})
        slow(replica, {"factor": 1.0})
        throttle(replica, {"factor": 1.0, "ramp_s": 0.0})


def model(replica: Replica, wishes: Wishes) -> None:
    names = wishes.get("names")
    if not isinstance(names, list) or not names or not all(isinstance(n, str) for n in names):
        raise refusal(f"names is {names!r}, wanted a list of model names")
    replica.models = list(names)


def poison(replica: Replica, wishes: Wishes) -> None:
    """From here on a prompt that contains `text` kills the engine; an empty one: none does."""
    text = wishes.get("text", "")
    if not isinstance(text, str):
        raise refusal(f"text is {text!r}, wanted a string")
    replica.poison = text.encode()


def queue(replica: Replica, wishes: Wishes) -> None:
    """Refuse from `limit` waiting requests on (0: never); streams, with `after_head`, by an error
    event under a 200."""
    replica.max_queued = int(number(wishes, "limit", 0))
    replica.refuse_after_head = bool(wishes.get("after_head", False))


Action = Callable[[Replica, Wishes], None]
ACTIONS: dict[str, Action] = {
    action.__name__: action
    for action in (
        *(slow, throttle, freeze, unfreeze, kill, sigterm, drain),
        *(xid, ecc, nvlink, repair, model, poison, queue),
    )
}
# these have to wait for the port
PORT_ACTIONS: dict[str, Callable[[Replica], Awaitable[None]]] = {
    "restart": Replica.restart,
    "refuse": Replica.refuse,
    "accept": Replica.accept,
}


class Control:
    """Answers `/_control` for a fleet."""

    def __init__(self, fleet: Sequence[Replica]) -> None:
        self._fleet = fleet
        self._tasks: set[asyncio.Task[None]] = set()

    def handle(self, request: Request, reply: Reply, asked: Replica | None = None) -> None:
        """Answer one request that came in on the port of `asked`."""
        reply.spare()
        try:
            if request.method != "POST":
                self._report(reply)
                return
            wishes = asks.parse_body(request)
            chosen = self._chosen(wishes, asked)
            name = wishes.get("action")
            if name in PORT_ACTIONS:
                work = self._with_port(PORT_ACTIONS[name], chosen, reply)
                task = asyncio.get_running_loop().create_task(work)
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            elif name in ACTIONS:
                for replica in chosen:
                    ACTIONS[name](replica, wishes)
                self._report(reply)
            else:
                known = ", ".join([*ACTIONS, *PORT_ACTIONS])
                raise refusal(f"action is {name!r}, wanted one of: {known}")
        except ApiError as error:
            reply.send(error.status, error.body())

    def _chosen(self, wishes: Wishes, asked: Replica | None) -> list[Replica]:
        which = wishes.get("replica", asked.index if asked else "all")
        if which == "all":
            return list(self._fleet)
        if isinstance(which, int) and 0 <= which < len(self._fleet):
            return [self._fleet[which]]
        raise refusal(f'replica is {which!r}, wanted 0 to {len(self._fleet) - 1} or "all"')

    async def _with_port(
        self, action: Callable[[Replica], Awaitable[None]], chosen: list[Replica], reply: Reply
    ) -> None:
        for replica in chosen:
            await action(replica)
        self._report(reply)

    def _report(self, reply: Reply) -> None:
        report = {"replicas": [status(replica) for replica in self._fleet]}
        reply.send(200, orjson.dumps(report))


def status(replica: Replica) -> dict[str, Any]:
    """One replica as `/_control` shows it."""
    engine = replica.driver.engine
    if replica.state is State.UP:
        replica.driver.catch_up()
    return {
        "replica": replica.index,
        "url": replica.url,
        "state": replica.state.value,
        "frozen": engine.frozen,
        "models": replica.models,
        "running": engine.running_count,
        "waiting": engine.waiting_count,
        "kv_usage": engine.kv_usage_ratio(replica.driver.now_ns()),
        "prefix_queries_tokens": engine.prefix_queries_tokens,
        "prefix_hits_tokens": engine.prefix_hits_tokens,
        "preemptions": engine.preemptions,
        "finished": engine.finished,
        "aborted": engine.aborted,
    }
