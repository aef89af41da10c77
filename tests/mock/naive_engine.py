"""The engine model again, one step at a time in plain Python: the oracle for the fast one."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from headrace.mock.engine_model import FINISHED, FIRST_TOKEN, SCHEDULED, TOKENS

MASK = (1 << 64) - 1


@dataclass(eq=False)
class Block:
    number: int
    hash: int = 0
    references: int = 0


class Memory:
    """Blocks; `free` is in the order in which they are handed out."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.free: OrderedDict[int, Block] = OrderedDict((i, Block(i)) for i in range(count))
        self.by_hash: dict[int, Block] = {}

    def find(self, hash_: int) -> Block | None:
        return self.by_hash.get(hash_) if hash_ else None

    def take(self, block: Block) -> None:
        self.free.pop(block.number, None)
        block.references += 1

    def take_free(self) -> Block:
        _, block = self.free.popitem(last=False)
        if block.hash:
            del self.by_hash[block.hash]
        block.hash = 0
        block.references = 1
        return block

    def give_back(self, block: Block) -> None:
        block.references -= 1
        if not block.references:
            self.free[block.number] = block

    def register(self, block: Block, hash_: int) -> None:
        if not hash_ or block.hash == hash_:
            return
        if hash_ in self.by_hash:
            self.by_hash[hash_].hash = 0
        self.by_hash[hash_] = block
        block.hash = hash_


@dataclass(eq=False)
class Sequence:
    request_id: int
    prompt: int
    output: int
    hashes: list[int]
    generated: int = 0
    computed: int = 0
    scheduled: int = 0
    cached: int = -1
    registered: int = 0
    blocks: list[Block] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.prompt + self.generated


class NaiveEngine:
    """Same rules, same arguments, no short cuts."""

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
    ) -> None:
        self.costs = (base_ns, prefill_ns, decode_ns, context_ns, swap_ns)
        self.block_tokens = block_tokens
        self.max_num_seqs = max_num_seqs
        self.budget = max_num_batched_tokens
        self.noise_ratio = noise_ratio
        self.random_state = seed
        self.memory = Memory(kv_tokens // block_tokens - 1)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.step_end: int | None = None
        self.ready = 0
        self.slow = 1.0
        self.preemptions = 0
        self.queries = 0
        self.hits = 0
        self.generated_tokens = 0
        self.steps = 0
        self.events: list[tuple[int, int, int, int]] = []

    def submit(
        self, now: int, request_id: int, prompt: int, output: int, hashes: list[int]
    ) -> Sequence:
        self.run_until(now)
        sequence = Sequence(request_id, prompt, output, hashes)
        if self.step_end is None and not self.running and not self.waiting:
            self.ready = now
        self.waiting.append(sequence)
        return sequence

    def abort(self, now: int, sequence: Sequence) -> bool:
        self.run_until(now)
        for where in (self.waiting, self.running):
            if sequence in where:
                where.remove(sequence)
                self.drop_blocks(sequence)
                return True
        return False

    def run_until(self, now: int) -> None:
        while True:
            if self.step_end is None:
                if self.ready >= now or not (self.running or self.waiting):
                    return
                self.begin_step()
            assert self.step_end is not None
            if self.step_end > now:
                return
            self.complete_step()

    def next_event(self) -> int | None:
        if self.step_end is None and (self.running or self.waiting):
            self.begin_step()
        return self.step_end

    def begin_step(self) -> None:
        budget = self.budget
        swapped = 0
        preempted_before = self.preemptions
        i = 0
        while i < len(self.running):
            sequence = self.running[i]
            tokens = min(sequence.total - sequence.computed, budget)
            while sequence in self.running and not self.grow(sequence, tokens):
                victim = self.running.pop()
                swapped += victim.computed
                self.drop_blocks(victim)
                victim.computed = victim.scheduled = 0
                self.waiting.insert(0, victim)
                self.preemptions += 1
            if sequence not in self.running:
                break
            sequence.scheduled = tokens
            budget -= tokens
            i += 1
        if self.preemptions > preempted_before:
            budget = 0
        while self.waiting and budget and len(self.running) < self.max_num_seqs:
            if not self.admit(self.waiting[0], budget):
                break
            budget -= self.running[-1].scheduled
        prefill = decodes = context = 0
        for sequence in self.running:
            if sequence.generated and sequence.scheduled == 1:
                decodes += 1
                context += sequence.computed
            else:
                prefill += sequence.scheduled
        self.step_end = self.ready + self.duration(prefill, decodes, context, swapped)
        self.steps += 1

    def admit(self, sequence: Sequence, budget: int) -> bool:
        size = self.block_tokens
        found: list[Block] = []
        for hash_ in sequence.hashes[: (sequence.total - 1) // size]:
            block = self.memory.find(hash_)
            if block is None:
                break
            found.append(block)
        computed = len(found) * size
        tokens = min(sequence.total - computed, budget)
        fresh = -(-(computed + tokens) // size) - len(found)
        if fresh + sum(not block.references for block in found) > len(self.memory.free):
            return False
        for block in found:
            self.memory.take(block)
        sequence.blocks = found
        sequence.registered = len(found)
        sequence.computed = computed
        assert self.grow(sequence, tokens)
        sequence.scheduled = tokens
        self.running.append(self.waiting.pop(0))
        if sequence.cached < 0:
            sequence.cached = computed
            self.queries += sequence.prompt
            self.hits += computed
            self.events.append((self.ready, SCHEDULED, sequence.request_id, computed))
        return True

    def complete_step(self) -> None:
        end = self.step_end
        assert end is not None
        for sequence in list(self.running):
            sequence.computed += sequence.scheduled
            if sequence.scheduled and sequence.computed == sequence.total:
                sequence.generated += 1
                self.generated_tokens += 1
                said = sequence.generated
                if said == 1:
                    self.events.append((end, FIRST_TOKEN, sequence.request_id, sequence.cached))
                self.events.append((end, TOKENS, sequence.request_id, said))
                if said == sequence.output:
                    self.events.append((end, FINISHED, sequence.request_id, said))
                    self.running.remove(sequence)
                    self.drop_blocks(sequence)
            sequence.scheduled = 0
        self.step_end = None
        self.ready = end

    def grow(self, sequence: Sequence, tokens: int) -> bool:
        stored = sequence.computed + tokens
        wanted = -(-stored // self.block_tokens) - len(sequence.blocks)
        if wanted > len(self.memory.free):
            return False
        for _ in range(wanted):
            sequence.blocks.append(self.memory.take_free())
        for i in range(sequence.registered, min(stored // self.block_tokens, len(sequence.hashes))):
            self.memory.register(sequence.blocks[i], sequence.hashes[i])
            sequence.registered = i + 1
        return True

    def drop_blocks(self, sequence: Sequence) -> None:
        for block in reversed(sequence.blocks):
            self.memory.give_back(block)
        sequence.blocks = []
        sequence.registered = 0

    def duration(self, prefill: int, decodes: int, context: int, swapped: int) -> int:
        base, a, b, c, swap = self.costs
        ns = base + a * prefill + b * decodes + c * context + swap * swapped
        ns *= self.slow
        if self.noise_ratio > 0.0:
            first, second = self.random(), self.random()
            ns *= 1.0 + self.noise_ratio * (first - second)
        return max(1, int(ns + 0.5))

    def random(self) -> float:
        self.random_state = (self.random_state + 0x9E3779B97F4A7C15) & MASK
        z = self.random_state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return ((z ^ (z >> 31)) >> 11) / (1 << 53)
