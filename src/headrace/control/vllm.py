"""An engine's metrics page, in every dialect, as one sample; and what follows from two of them.

vLLM renamed its gauges over time, prints one line for each data-parallel engine, and counts prefix
hits in tokens; SGLang says the same things under other names. What a page does not say, or says
impossibly, is None: unknown, never zero.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from headrace.core.promtext import Scanner

MAX_REQUESTS = 1e6
MAX_TOKENS = 1e15
MAX_KV_TOKENS = 1e11
KV_CONFIG = "vllm:cache_config_info"
RESTART_SLACK_S = 1.0


@dataclass(frozen=True, slots=True)
class Field:
    """One figure: names by precedence, its range, and how the lines of several engines combine."""

    name: str
    series: tuple[str, ...]
    combine: Callable[[Iterable[float]], float]
    highest: float


def mean(values: Iterable[float]) -> float:
    """Return the mean of at least one value."""
    listed = list(values)
    return sum(listed) / len(listed)


# KV use takes the maximum: a request lands on one engine, and the fullest is the one that preempts.
FIELDS = (
    Field("running", ("vllm:num_requests_running", "sglang:num_running_reqs"), sum, MAX_REQUESTS),
    Field("waiting", ("vllm:num_requests_waiting", "sglang:num_queue_reqs"), sum, MAX_REQUESTS),
    Field(
        "kv_usage",
        ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc", "sglang:token_usage"),
        max,
        1.0,
    ),
    Field("kv_capacity_tokens", ("sglang:max_total_num_tokens",), sum, MAX_KV_TOKENS),
    Field(
        "prefix_queries",
        (
            "vllm:prefix_cache_queries_total",
            "vllm:prefix_cache_queries",
            "vllm:gpu_prefix_cache_queries_total",
            "vllm:gpu_prefix_cache_queries",
            "sglang:prompt_tokens_total",
        ),
        sum,
        MAX_TOKENS,
    ),
    Field(
        "prefix_hits",
        (
            "vllm:prefix_cache_hits_total",
            "vllm:prefix_cache_hits",
            "vllm:gpu_prefix_cache_hits_total",
            "vllm:gpu_prefix_cache_hits",
            "sglang:cached_tokens_total",
        ),
        sum,
        MAX_TOKENS,
    ),
    Field(
        "hit_ratio",
        (
            "vllm:gpu_prefix_cache_hit_rate",
            "vllm:prefix_cache_hit_rate",
            "sglang:cache_hit_rate",
        ),
        mean,
        1.0,
    ),
    Field("preemptions", ("vllm:num_preemptions_total", "vllm:num_preemptions"), sum, MAX_TOKENS),
    Field(
        "generated_tokens",
        (
            "vllm:generation_tokens_total",
            "vllm:generation_tokens",
            "sglang:generation_tokens_total",
        ),
        sum,
        MAX_TOKENS,
    ),
    Field("started_at_s", ("process_start_time_seconds",), max, 1e12),
)
# Every label that tells engines of one replica apart; lines that differ in others only (SGLang's
# tensor-parallel ranks) say the same thing twice.
ENGINE_LABELS = ("engine", "dp_rank", "model_name")
CONFIG_LABELS = ("block_size", "num_gpu_blocks", "kv_cache_size_tokens")
SCANNER = Scanner(
    [*(series for field in FIELDS for series in field.series), KV_CONFIG],
    [*ENGINE_LABELS, *CONFIG_LABELS],
)


@dataclass(frozen=True, slots=True)
class EngineSample:
    """One reading of an engine; None is unknown. Counters are totals since the engine's start."""

    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None  # ratio
    kv_capacity_tokens: float | None = None
    prefix_queries: float | None = None  # tokens
    prefix_hits: float | None = None  # tokens
    hit_ratio: float | None = None  # of engines that print the ratio themselves
    preemptions: float | None = None
    generated_tokens: float | None = None
    started_at_s: float | None = None  # epoch
    models: tuple[str, ...] = ()
    bad: int = 0  # values dropped: malformed, negative, infinite, beyond the possible

    @property
    def is_empty(self) -> bool:
        """True if the page said nothing about load: not an engine's page, or a broken one."""
        return self.running is None and self.waiting is None and self.kv_usage is None


def kv_tokens_of(config: dict[str, str]) -> float | None:
    """Return the KV capacity in tokens from the labels of vLLM's cache_config_info, or None."""
    try:
        stated = config.get("kv_cache_size_tokens", "None")
        if stated != "None":
            tokens = float(stated)
        else:
            tokens = float(config["block_size"]) * float(config["num_gpu_blocks"])
    except (KeyError, ValueError):
        return None
    return tokens if 0 < tokens <= MAX_KV_TOKENS else None


def read_page(page: bytes) -> EngineSample:
    """Read an engine's metrics page.

    Any bytes are accepted: what cannot be read is counted in `bad`, what is absent is None.
    """
    samples, bad = SCANNER.scan(page)
    lines: dict[str, dict[tuple[str, ...], float]] = {}
    models: dict[str, None] = {}
    for name, value, labels in samples:
        model = labels.get("model_name")
        if model:
            models[model] = None
        engine = tuple(labels.get(label, "") for label in ENGINE_LABELS)
        if name == KV_CONFIG:
            tokens = kv_tokens_of(labels)
            if tokens is None:
                continue
            value = tokens
        own = lines.setdefault(name, {})
        own[engine] = max(own.get(engine, -math.inf), value) if value == value else math.nan
    figures: dict[str, float | None] = {}
    for field in FIELDS:
        figures[field.name], dropped = combine(field, lines)
        bad += dropped
    if figures["kv_capacity_tokens"] is None and KV_CONFIG in lines:
        figures["kv_capacity_tokens"] = sum(lines[KV_CONFIG].values())
    return EngineSample(**figures, models=tuple(models), bad=bad)


def combine(
    field: Field, lines: dict[str, dict[tuple[str, ...], float]]
) -> tuple[float | None, int]:
    """Return a field's figure over all engines, and how many impossible values were dropped.

    One engine's impossible value makes a sum unknown: a part is not the whole. NaN is no value.
    """
    dropped = 0
    for series in field.series:
        values = lines.get(series)
        if not values:
            continue
        good = [value for value in values.values() if 0 <= value <= field.highest]
        dropped += sum(value == value for value in values.values()) - len(good)
        if good and (len(good) == len(values) or field.combine is not sum):
            return field.combine(good), dropped
    return None, dropped


@dataclass(frozen=True, slots=True)
class EngineNews:
    """What the latest sample says beside its own figures."""

    restarted: bool
    generation: int
    hit_ratio: float | None  # of the last interval with queries; None: never one
    new_preemptions: float


COUNTERS = ("prefix_queries", "prefix_hits", "preemptions", "generated_tokens")


def has_restarted(old: EngineSample, new: EngineSample) -> bool:
    """Return True if `new` is of another engine process than `old`.

    Its start time has moved, or a counter has fallen (old pages carry no start time).
    """
    if old.started_at_s is not None and new.started_at_s is not None:
        return abs(new.started_at_s - old.started_at_s) > RESTART_SLACK_S or has_fallen(old, new)
    return has_fallen(old, new)


def has_fallen(old: EngineSample, new: EngineSample) -> bool:
    """Return True if a counter that both samples have is smaller in `new`."""
    for name in COUNTERS:
        before, after = getattr(old, name), getattr(new, name)
        if before is not None and after is not None and after < before:
            return True
    return False


def growth(old: float | None, new: float | None, restarted: bool) -> float | None:
    """Return what a counter gained, None if unknown; after a restart it counts from 0."""
    if new is None:
        return None
    if restarted:
        return new
    return None if old is None else new - old


class EngineTracker:
    """Follows one engine from sample to sample: restarts and figures of the interval."""

    def __init__(self) -> None:
        self.generation = 0
        self._last: EngineSample | None = None
        self._hit_ratio: float | None = None

    def update(self, sample: EngineSample) -> EngineNews:
        """Take the next sample of this engine; an empty one changes nothing."""
        last = self._last
        if last is None or sample.is_empty:
            if not sample.is_empty:
                self._last = sample
                self._hit_ratio = sample.hit_ratio
            return EngineNews(False, self.generation, self._hit_ratio, 0.0)
        restarted = has_restarted(last, sample)
        if restarted:
            self.generation += 1
        self._hit_ratio = self._next_hit_ratio(last, sample, restarted)
        self._last = sample
        preempted = growth(last.preemptions, sample.preemptions, restarted)
        return EngineNews(restarted, self.generation, self._hit_ratio, preempted or 0.0)

    def _next_hit_ratio(
        self, old: EngineSample, new: EngineSample, restarted: bool
    ) -> float | None:
        queries = growth(old.prefix_queries, new.prefix_queries, restarted)
        hits = growth(old.prefix_hits, new.prefix_hits, restarted)
        if queries is None or hits is None:
            return self._hit_ratio if new.hit_ratio is None else new.hit_ratio
        if queries <= 0:  # idle: the last figure stands
            return self._hit_ratio
        return min(1.0, hits / queries)
