from typing import Any, Final

from headrace.core.balancer import Balancer
from headrace.core.request import RouteRequest

ADMISSIONS: Final[tuple[str, ...]]

def explain(balancer: Balancer, request: RouteRequest, now_ns: int) -> dict[str, Any]:
    """What would be chosen and why, by slot; changes nothing.

    Returns:
        `policy`, `slot` (None: nobody), `reason`, `estimate`, `learned` and `replicas`: for
        each slot `eligible`, `why` not, `score` and `terms`.
    """
