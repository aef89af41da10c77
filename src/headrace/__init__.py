"""headrace: an LLM inference gateway and its router as a library.

`from headrace import Router, RouteRequest, Replica` brings in neither asyncio nor anything of the
network; docs/embedding.md has examples.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headrace.errors import HeadraceError, NoReplica, Overloaded, UnknownModel
    from headrace.lease import Lease
    from headrace.replica import Replica
    from headrace.request import RouteRequest
    from headrace.router import Router

__version__ = "0.1.0"
__all__ = [
    "HeadraceError",
    "Lease",
    "NoReplica",
    "Overloaded",
    "Replica",
    "RouteRequest",
    "Router",
    "UnknownModel",
]

# Loaded when first asked for, so that `headrace --version` does not wait for compiled modules.
_HOME = {
    "HeadraceError": "headrace.errors",
    "Lease": "headrace.lease",
    "NoReplica": "headrace.errors",
    "Overloaded": "headrace.errors",
    "Replica": "headrace.replica",
    "RouteRequest": "headrace.request",
    "Router": "headrace.router",
    "UnknownModel": "headrace.errors",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'headrace' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
