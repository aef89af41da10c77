"""One fake vLLM: its port, its engine, its life and death."""

from __future__ import annotations

import asyncio
import enum
import random
import time
from collections import Counter
from collections.abc import Callable

from headrace.mock.api_errors import engine_dead
from headrace.mock.asks import Ask
from headrace.mock.block_hashes import block_hashes
from headrace.mock.dialects import Dialect
from headrace.mock.embeddings import Embeddings
from headrace.mock.engine_driver import EngineDriver, Sequence
from headrace.mock.generation import Generation
from headrace.mock.hardware import Hardware
from headrace.mock.http import Handler, Headers, HttpProtocol, Reply
from headrace.mock.metrics_page import MetricsPage, new_histograms
from headrace.mock.options import BLOCK_TOKENS, Options
from headrace.mock.presets import engine_of
from headrace.mock.text import words

NATURAL_OUTPUT_TOKENS = (5.0, 0.6)  # log-normal: median 148 tokens where no limit is given
DEAD_ENGINE_S = 0.05  # from the death of the engine to the end of the server, as seen in vLLM
STOPPING_S = 0.3  # from SIGTERM to the end of the server


class State(enum.Enum):
    """Where a replica is in its life."""

    UP = "up"
    STOPPING = "stopping"  # told to end: `/health` is still 200, new requests get 500
    DEAD = "dead"  # the engine died, the server still answers: `/health` is 503
    DOWN = "down"  # connections are refused


Work = Generation | Embeddings


class Replica:
    """One engine behind one port. `handler` answers its requests; `listen` opens the port."""

    def __init__(self, index: int, options: Options, host: str, port: int) -> None:
        self.index = index
        self.options = options
        self.host, self.port = host, port
        self.hardware = Hardware(options.preset)
        self.handler: Handler | None = None
        self.connections: set[HttpProtocol] = set()
        self._listener: asyncio.Server | None = None
        self._revival: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._restarts = -1
        self._begin_life()

    def _begin_life(self) -> None:
        """What a new process starts with: empty cache, counters at zero, no faults."""
        options = self.options
        self._restarts += 1
        self.state = State.DOWN
        self.models = list(options.models)
        self.max_queued = options.max_queued
        self.refuse_after_head = False
        self.poison = b""  # what in a prompt kills the engine
        self.refused = 0
        self.started_s = time.time()
        self.open: set[Work] = set()
        self.finished: Counter[str] = Counter()
        self.frozen_values: dict[str, float] | None = None
        engine = engine_of(
            options.preset,
            seed=(options.seed << 32) + (self.index << 16) + self._restarts,
            noise_ratio=options.noise_ratio,
            block_tokens=BLOCK_TOKENS,
            detailed=True,
            speedup=options.speedup,
        )
        hottest = max(gpu.heat for gpu in self.hardware.gpus)
        engine.set_heat(0, hottest, 1)  # a new process, but the same GPUs
        self.driver = EngineDriver(engine, new_histograms())
        self._page = MetricsPage(self.models[0], self.started_s, self._cache_config())

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    # requests

    def generate(
        self, dialect: Dialect, reply: Reply, headers: Headers | None = None
    ) -> Generation:
        """Start answering; the head of a stream goes out at once."""
        generation = Generation(self, dialect, reply, headers)
        self.open.add(generation)
        ask, now_ns = dialect.ask, self.driver.now_ns()
        for index in range(ask.sequences):
            prompt = ask.prompts[index // ask.n]
            output_tokens = self._output_tokens(ask, prompt.tokens)
            data = prompt.data
            if prompt.bytes_per_token == 4:  # the answer can be found again by the next turn
                data += words(ask.seed + index, 0, output_tokens).encode()
            block_bytes = BLOCK_TOKENS * prompt.bytes_per_token
            sequence = Sequence(generation, index, prompt.tokens, output_tokens)
            generation.sequences.append(sequence)
            hashes = block_hashes(data, block_bytes, ask.cache_seed)
            self.driver.submit(now_ns, sequence, hashes)
        self.driver.arm()
        if self.poison and any(self.poison in prompt.data for prompt in ask.prompts):
            self.kill_engine()
        return generation

    def embed(self, embeddings: Embeddings, reply: Reply) -> None:
        """Compute an embeddings request: for the engine, prompts with an answer of one token."""
        self.open.add(embeddings)
        embeddings.on_end = self.open.discard
        reply.on_gone = lambda: self.abort(embeddings)
        now_ns = self.driver.now_ns()
        for index, prompt in enumerate(embeddings.prompts):
            sequence = Sequence(embeddings, index, prompt.tokens, 1)
            embeddings.sequences.append(sequence)
            self.driver.submit(now_ns, sequence, b"")
        self.driver.arm()

    def abort(self, work: Work) -> None:
        """The client hung up: free what it had on the engine at once."""
        self.open.discard(work)
        for sequence in work.sequences:
            self.driver.abort(sequence)

    def count_finish(self, reason: str) -> None:
        self.finished[reason] += 1

    def queue_is_full(self) -> bool:
        limit = self.max_queued
        return bool(limit) and self.driver.engine.waiting_count >= limit

    def _output_tokens(self, ask: Ask, prompt_tokens: int) -> int:
        preset = self.options.preset
        room = min(preset.max_model_len, preset.kv_tokens - BLOCK_TOKENS) - prompt_tokens
        wanted = ask.output_tokens
        if wanted is None:
            wanted = int(random.Random(ask.seed).lognormvariate(*NATURAL_OUTPUT_TOKENS))
        return max(1, min(wanted, room))

    # metrics

    def page(self) -> bytes:
        """The `/metrics` page."""
        return self._page.render(self.values(), self.driver.histograms)

    def values(self) -> dict[str, float]:
        """Gauges and counters; a frozen engine goes on showing those of its last moment."""
        if self.frozen_values is not None:
            return self.frozen_values
        engine = self.driver.engine
        if self.state is not State.DEAD:
            self.driver.catch_up()
        hits, prompt = engine.prefix_hits_tokens, engine.prompt_tokens
        values: dict[str, float] = {
            "process_start_time_seconds": self.started_s,
            "process_cpu_seconds_total": time.process_time(),
            "num_requests_running": engine.running_count,
            "num_requests_waiting": engine.waiting_count,
            "num_requests_waiting_by_reason/capacity": engine.waiting_count,
            "engine_sleep_state/awake": 1,
            "kv_cache_usage_perc": engine.kv_usage_ratio(self.driver.now_ns()),
            "prefix_cache_queries_total": engine.prefix_queries_tokens,
            "prefix_cache_hits_total": hits,
            "num_preemptions_total": engine.preemptions,
            "prompt_tokens_total": prompt,
            "prompt_tokens_by_source_total/local_compute": prompt - hits,
            "prompt_tokens_by_source_total/local_cache_hit": hits,
            "prompt_tokens_cached_total": hits,
            "prompt_tokens_cached_by_source_total/device": hits,
            "generation_tokens_total": engine.generated_tokens,
            "admission_rejections_total/max_num_queued_reqs": self.refused,
        }
        for reason, count in self.finished.items():
            values[f"request_success_total/{reason}"] = count
        return values

    def _cache_config(self) -> dict[str, str]:
        preset = self.options.preset
        return {
            "block_size": str(BLOCK_TOKENS),
            "effective_attention_block_size": str(BLOCK_TOKENS),
            "num_gpu_blocks": str(preset.kv_tokens // BLOCK_TOKENS),
            "num_gpu_blocks_override": "None",
            "kv_cache_size_tokens": str(preset.kv_tokens),
            "kv_cache_max_concurrency": str(preset.kv_tokens / preset.max_model_len),
            "kv_cache_memory_bytes": "None",
            "user_specified_block_size": "False",
        }

    # life and death

    async def listen(self) -> None:
        """Open the port; raises OSError if it is taken."""
        handler = self.handler
        assert handler is not None
        self._listener = await self._loop.create_server(
            lambda: HttpProtocol(handler, self.connections), self.host, self.port, backlog=1024
        )
        self.state = State.UP

    def freeze(self) -> None:
        """The engine hangs: the server answers, the numbers stand still, nothing is generated."""
        self.frozen_values = self.values()
        self.driver.engine.freeze(self.driver.now_ns())

    def unfreeze(self) -> None:
        self.frozen_values = None
        self.driver.engine.unfreeze(self.driver.now_ns())
        self.driver.arm()

    def kill_engine(self, down_s: float | None = None) -> None:
        """The engine process dies: open requests fail, the server ends a moment later."""
        if self.state in (State.DEAD, State.DOWN):
            return
        self.frozen_values = self.values()
        self.state = State.DEAD
        self.driver.kill()
        for work in list(self.open):
            work.fail(engine_dead())
        self._loop.call_later(DEAD_ENGINE_S, self._if_same_life(lambda: self.crash(down_s)))

    def stop(self, drain_s: float = 0.0, down_s: float | None = None) -> None:
        """SIGTERM: end open requests now, or let them run for `drain_s` and take no new ones."""
        if self.state is not State.UP:
            return
        self.state = State.STOPPING
        if drain_s > 0:
            deadline = self._loop.time() + drain_s
            self._drain(deadline, down_s)
        else:
            self._end_all(down_s)

    def _drain(self, deadline: float, down_s: float | None) -> None:
        if self.open and self._loop.time() < deadline:
            again = self._if_same_life(lambda: self._drain(deadline, down_s))
            self._loop.call_later(0.05, again)
        else:
            self._end_all(down_s)

    def _end_all(self, down_s: float | None) -> None:
        for work in list(self.open):
            for sequence in work.sequences:
                self.driver.abort(sequence)
            work.end_by_replica()
        self._loop.call_later(STOPPING_S, self._if_same_life(lambda: self.crash(down_s)))

    def crash(self, down_s: float | None = None) -> None:
        """The whole process is gone: open streams are cut, connections refused, for `down_s`
        seconds (None: until `restart`)."""
        self.state = State.DOWN
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for work in list(self.open):
            self.abort(work)
        for connection in list(self.connections):
            if not connection.spared:
                connection.close()
        self.driver.kill()
        if down_s is not None:
            self._revival = self._loop.call_later(down_s, self._restart_soon)

    async def refuse(self) -> None:
        """A brown-out: no new connection until `accept`, current answers run to their end."""
        if self.state is not State.UP or self._listener is None:
            return
        self._listener.close()
        self._listener = None
        await asyncio.sleep(0)  # the loop closes the listener on its next turn
        for connection in list(self.connections):
            if not connection.spared:
                connection.retire()

    async def accept(self) -> None:
        """The end of `refuse`."""
        if self.state is State.UP and self._listener is None:
            await self.listen()

    async def restart(self) -> None:
        """A new process on the same port, whatever became of the old one."""
        self.crash()
        if self._revival is not None:
            self._revival.cancel()
        await asyncio.sleep(0)  # the loop closes the old listener on its next turn
        self._begin_life()
        await self.listen()

    def _restart_soon(self) -> None:
        self._task = self._loop.create_task(self.restart())

    def _if_same_life(self, action: Callable[[], None]) -> Callable[[], None]:
        life = self._restarts

        def check() -> None:
            if self._restarts == life and self.state is not State.DOWN:
                action()

        return check
