"""The four signals that one card is not enough, evaluated for the case at hand."""

from __future__ import annotations

import msgspec

from headrace.plan.memory import Split, memory_of
from headrace.plan.planner import MIN_CONCURRENT, Plan
from headrace.plan.question import Ask
from headrace.plan.roofline import decode_step_s
from headrace.plan.steplaw import machine_of

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
    signals = (
        _weights(ask),
        _ten_at_once(ask),
        _long_context(ask),
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


def _card(ask: Ask, context_tokens: int) -> tuple[int, float, float]:
    """KV tokens of a single card, and what weights and the rest want of what there is, GB."""
    memory = memory_of(
        ask.model,
        ask.gpu,
        Split(),
        ask.weights_dtype,
        ask.kv_dtype,
        context_tokens=context_tokens,
    )
    wanted = memory.weight_bytes + memory.activation_bytes + memory.runtime_bytes
    return (
        memory.kv_capacity_tokens,
        wanted / 1e9,
        memory.card_bytes * memory.utilization / 1e9,
    )


def _weights(ask: Ask) -> Signal:
    kv_tokens, wanted, room = _card(ask, ask.context_tokens)
    why = f"weights and runtime want {wanted:.1f} GB of the {room:.1f} GB that a card offers"
    return Signal("weights_do_not_fit", kv_tokens == 0, why)


def _ten_at_once(ask: Ask) -> Signal:
    name = "throughput_collapses_at_10"
    context = max(1, round(ask.traffic.context_tokens))
    kv_tokens, _, _ = _card(ask, context)
    length = ask.traffic.input_tokens + ask.traffic.output_tokens
    fit = int(kv_tokens / length)
    if fit < MIN_CONCURRENT:
        why = f"the KV cache of one card holds {fit} sequences of {length:.0f} tokens, not 10"
        return Signal(name, True, why)
    machine = machine_of(ask.gpu, Split(), ask.inside, ask.between)
    one_s, ten_s = (
        decode_step_s(
            ask.model, machine, ask.weights_dtype, ask.kv_dtype, n, context, ask.efficiency
        )
        for n in (1, MIN_CONCURRENT)
    )
    why = f"a stream on one card gets {1 / one_s:.0f} tokens/s alone, {1 / ten_s:.0f} among ten"
    return Signal(name, ten_s > _COLLAPSE_RATIO * one_s, why)


def _long_context(ask: Ask) -> Signal:
    kv_tokens, _, _ = _card(ask, ask.context_tokens)
    why = f"one card holds {kv_tokens} tokens of KV cache, a sequence may have {ask.context_tokens}"
    return Signal("long_context_oom", kv_tokens < ask.context_tokens, why)


def _always_on(ask: Ask) -> Signal:
    if ask.always_on:
        why = "asked for: a machine may fail or be updated, so one replica is to spare"
    else:
        why = "not asked for (--always-on)"
    return Signal("needs_24x7", ask.always_on, why)
