import asyncio

from headrace.proxy.plane import Plane

class Downstream(asyncio.Protocol):
    """A client's connection: reads heads and bodies, and hands whole requests on."""

    def __init__(self, plane: Plane) -> None: ...
