from typing import Final

SCHEDULED: Final = 0
FIRST_TOKEN: Final = 1
TOKENS: Final = 2
FINISHED: Final = 3
NEVER_NS: Final[int]

def derived_hash(value: int, i: int) -> int:
    """What block i of an engine is known by, if its hash stems from `value` for several blocks."""

class Engine:
    """One engine with the scheduler of vLLM V1 (github.com/vllm-project/vllm, `v1/core/sched`).

    Pure: time comes in as nanoseconds that never decrease, randomness from `seed`. Sequences are
    served first come, first served; running ones first, one token or one chunk of prefill each,
    within `max_num_batched_tokens`; then waiting ones up to `max_num_seqs`. KV memory is
    `kv_tokens // block_tokens - 1` blocks, reference-counted, with an LRU prefix cache. When it is
    full the newest running sequence is preempted and computes everything again later.

    A step takes `base_ns + prefill_ns·prefill tokens + decode_ns·decoding sequences +
    context_ns·KV tokens these read + swap_ns·KV tokens dropped by preemption`, times the slow
    factor, times 1 ± a triangular noise of at most `noise_ratio`.

    Several calls at one time belong to one instant: the next step begins when time moves on or
    `next_event_ns` asks for its end.
    """

    block_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    running_count: int
    waiting_count: int
    frozen: bool
    alive: bool
    generation: int
    prefix_queries_tokens: int
    prefix_hits_tokens: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    prefilled_tokens: int
    steps: int
    busy_ns: int
    finished: int
    aborted: int

    def __init__(
        self,
        *,
        base_ns: float,
        prefill_ns: float,
        decode_ns: float,
        context_ns: float,
        kv_tokens: int,
        block_tokens: int = 16,
        max_num_seqs: int = 256,
        max_num_batched_tokens: int = 8192,
        swap_ns: float = 0.0,
        noise_ratio: float = 0.0,
        seed: int = 0,
        detailed: bool = False,
    ) -> None: ...
    def submit(
        self,
        now_ns: int,
        request_id: int,
        prompt_tokens: int,
        output_tokens: int,
        hashes: bytes | bytearray | memoryview | None = None,
        hash_tokens: int = 0,
    ) -> int:
        """Queue a request and return a handle for `abort`.

        hashes: native unsigned 64-bit numbers, one for each leading block of `hash_tokens` tokens
        (0: `block_tokens`) of prompt and answer; a hash stands for its block and all before it, 0
        for a block that is never shared. hash_tokens is a multiple of `block_tokens`.

        Raises ValueError if it can never fit, RuntimeError if the engine is dead.
        """

    def abort(self, now_ns: int, handle: int) -> bool:
        """Free everything of a request at once; False if it has ended already."""

    def next_event_ns(self) -> int:
        """When `advance` should be called next; NEVER_NS if nothing will happen by itself.

        With `detailed` this is the end of each step, else steps that bring neither a first token
        nor an end are passed over where that changes nothing.
        """

    def advance(self, now_ns: int) -> list[tuple[int, int, int, int]]:
        """Let time pass; events since the last call as (time in ns, kind, request id, value).

        FIRST_TOKEN carries the cached prompt tokens, FINISHED the generated tokens. With `detailed`
        also SCHEDULED (left the queue; cached prompt tokens) and TOKENS (generated so far).
        """

    def kv_usage_ratio(self, now_ns: int) -> float:
        """Blocks in use ÷ usable blocks; cached blocks that nobody uses count as free."""

    def cached_prefix_tokens(
        self, hashes: bytes | bytearray | memoryview, prompt_tokens: int, hash_tokens: int = 0
    ) -> int:
        """How many leading prompt tokens would be found in the cache; changes nothing."""

    def journal_blocks(self) -> tuple[list[tuple[int, bool]], int]:
        """Hashes that entered (True) or left the cache since the last call, and tokens of the
        blocks handed out meanwhile; the first call begins the journal.
        """

    def set_slow(self, now_ns: int, factor: float) -> None:
        """Steps that begin from here on take `factor` times as long (1: normal)."""

    def set_heat(self, now_ns: int, factor: float, ramp_ns: int) -> None:
        """Like `set_slow`, on top of it, reached gradually within `ramp_ns`."""

    def freeze(self, now_ns: int) -> None:
        """Nothing proceeds, not even the current step, until `unfreeze`."""

    def unfreeze(self, now_ns: int) -> None: ...
    def kill(self, now_ns: int) -> list[int]:
        """The engine dies: ids of the requests lost, in the order of their submission."""

    def restart(self, now_ns: int) -> list[int]:
        """Back with an empty cache, new counters and the next `generation`; ids lost as `kill`."""
