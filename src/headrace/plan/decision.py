"""The four signals that one card is not enough, evaluated for the case at hand."""

from __future__ import annotations

import msgspec

from headrace.plan.deployment import Deployment, Split
from headrace.plan.memory import memory_of
from headrace.plan.planner import MIN_CONCURRENT, Plan
from headrace.plan.question import Ask
from headrace.plan.replica import deployment_for
from headrace.plan.roofline import decode_step_s

# A user sees a collapse when the stream slows down to half.
_COLLAPSE_RATIO = 2.0


class Signal(msgspec.Struct, frozen=True):
    """One reason to leave the single card; `why` has the numbers either way."""

    name: str
    fires: bool
    why: str


class Decision(msgspec.Struct, frozen=True):
    """`single_card`, `multi_card` (one machine) or `cluster`."""

    verdict: str
    signals: tuple[Signal, ...]


def decide(plan: Plan) -> Decision:
    """Single card, several cards of one machine, or several machines; and why."""
    ask = plan.ask
    card = deployment_for(ask, Split())
    signals = (
        _weights(card, ask),
        _ten_at_once(card, ask),
        _long_context(card, ask),
        _always_on(ask),
    )
    cards = plan.fleet.cards if plan.fleet else plan.replica.split.gpus
    if plan.hosts > 1 or ask.always_on:
        verdict = "cluster"
    elif cards > 1:
        verdict = "multi_card"
    else:
        verdict = "single_card"
    return Decision(verdict, signals)


def _weights(card: Deployment, ask: Ask) -> Signal:
    memory = memory_of(card, ask.context_tokens)
    wanted = memory.weight_bytes + memory.activation_bytes + memory.runtime_bytes
    room = memory.card_bytes * memory.utilization
    why = (
        f"weights and runtime want {wanted / 1e9:.1f} GB of the {room / 1e9:.1f} GB that a card "
        "offers"
    )
    return Signal("weights_do_not_fit", memory.kv_capacity_tokens == 0, why)


def _ten_at_once(card: Deployment, ask: Ask) -> Signal:
    name = "throughput_collapses_at_10"
    context = max(1, round(ask.traffic.context_tokens))
    length = ask.traffic.input_tokens + ask.traffic.output_tokens
    fit = int(memory_of(card, context).kv_capacity_tokens / length)
    if fit < MIN_CONCURRENT:
        why = f"the KV cache of one card holds {fit} sequences of {length:.0f} tokens, not 10"
        return Signal(name, True, why)
    one_s, ten_s = (decode_step_s(card, n, context) for n in (1, MIN_CONCURRENT))
    why = f"a stream on one card gets {1 / one_s:.0f} tokens/s alone, {1 / ten_s:.0f} among ten"
    return Signal(name, ten_s > _COLLAPSE_RATIO * one_s, why)


def _long_context(card: Deployment, ask: Ask) -> Signal:
    held = memory_of(card, ask.context_tokens).kv_capacity_tokens
    why = f"one card holds {held} tokens of KV cache, a sequence may have {ask.context_tokens}"
    return Signal("long_context_oom", held < ask.context_tokens, why)


def _always_on(ask: Ask) -> Signal:
    if ask.always_on:
        why = "asked for: a machine may fail or be updated, so one replica is to spare"
    else:
        why = "not asked for (--always-on)"
    return Signal("needs_24x7", ask.always_on, why)
