"""What control has read of one engine."""

from __future__ import annotations

from dataclasses import dataclass, field

from headrace.control.vllm import EngineSample, EngineTracker
from headrace.foreign import Foreign, ForeignLoad


@dataclass(slots=True)
class EngineReading:
    """The latest figures of one engine."""

    sample: EngineSample = field(default_factory=EngineSample)
    hit_ratio: float | None = None
    scraped_at_ns: int = 0  # 0: never
    trouble: str = ""  # why the last fetch brought nothing
    foreign: ForeignLoad = field(default_factory=ForeignLoad)
    tracker: EngineTracker = field(default_factory=EngineTracker)

    def is_fresh(self, now_ns: int, stale_after_s: float) -> bool:
        """True if the figures may be believed."""
        return self.scraped_at_ns > 0 and now_ns - self.scraped_at_ns <= stale_after_s * 1e9

    def foreign_at(self, now_ns: int, stale_after_s: float) -> Foreign | None:
        """The load of others, None when it is not known."""
        return self.foreign.value if self.is_fresh(now_ns, stale_after_s) else None
