"""The port of the fake DCGM exporter, which also takes `/_control`."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.mock import dcgm_page
from headrace.mock.http import Handler, Reply, Request
from headrace.mock.replica import Replica


class Exporter:
    """Answers `/metrics` for the GPUs of a fleet."""

    def __init__(self, fleet: Sequence[Replica], control: Handler) -> None:
        self._fleet = fleet
        self._control = control

    def handle(self, request: Request, reply: Reply) -> None:
        if request.path == "/_control":
            self._control(request, reply)
        elif request.path == "/metrics":
            for replica in self._fleet:
                engine = replica.driver.engine
                replica.hardware.measure(engine.busy_ns, replica.driver.now_ns())
            page = dcgm_page.render([replica.hardware for replica in self._fleet])
            reply.send(200, page, content_type=dcgm_page.CONTENT_TYPE)
        else:
            reply.send(404, b"404 page not found", content_type="text/plain; charset=utf-8")
