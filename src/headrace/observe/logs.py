"""How log records are written: one line each, whatever is in them."""

from __future__ import annotations

import logging

import orjson

from headrace.config import Observability


class _Line(logging.Formatter):
    """Text with line breaks and control characters escaped: no record can forge a second one."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


class _Json(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "time": record.created,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry).decode()


def formatter(as_json: bool) -> logging.Formatter:
    """The formatter of the gateway's log, as text or as one JSON object a line."""
    return _Json() if as_json else _Line("%(asctime)s %(levelname)s %(name)s: %(message)s")


def configure(settings: Observability) -> None:
    """Logs go to stderr, from the level of the settings on."""
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings.log_json))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler], force=True)
