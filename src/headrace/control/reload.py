"""Puts a new configuration in force: whole, or not at all.

SIGHUP, POST /reload and a change of the file do the same. Members are compared by URL, so running
requests, learned speeds and drains are not touched.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import TYPE_CHECKING

from headrace import config as configuration
from headrace.control import judging, membership
from headrace.control.discovery.watch import FileWatch
from headrace.errors import ConfigError

if TYPE_CHECKING:
    from headrace.control.loop import Control

log = logging.getLogger("headrace.control")

POLL_S = 1.0


class Reloader:
    """Counts the configurations in force and refused; remembers the last mistake."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self.generation = 1
        self.errors = 0
        self.last_error = ""
        path = configuration.config_path(control.args, os.environ)
        self._watch = FileWatch(str(path)) if path is not None else None
        if self._watch is not None:
            self._watch.take()

    def reload(self) -> None:
        """Read everything again; raises ConfigError, and then nothing has changed."""
        control = self._control
        if self._watch is not None:
            self._watch.take()
        try:
            config = configuration.load(control.args, os.environ)
            control.upward.configure(config.observability)
        except ConfigError as error:
            self.errors += 1
            self.last_error = str(error)
            log.error("the last good configuration stays in force: %s", error)
            raise
        self.last_error = ""
        control.config = config
        control.take_tls()
        control.fleet.configure(judging.settings_of(config), time.monotonic_ns())
        control.sources.configure(config)
        membership.apply(control)
        self.generation += 1
        control.publish()
        log.info("configuration %d in force", self.generation)

    def reload_quietly(self) -> None:
        """Reload; a mistake is logged and counted."""
        try:
            self.reload()
        except ConfigError:
            pass

    async def watch(self) -> None:
        """Reload when the file has changed and rests."""
        await asyncio.sleep(POLL_S)
        if self._watch is not None and self._watch.has_changed():
            self.reload_quietly()
