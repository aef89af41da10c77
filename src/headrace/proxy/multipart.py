"""Where the `model` field of a multipart/form-data body lies (RFC 7578)."""

from __future__ import annotations

import re

_BOUNDARY = re.compile(rb';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE)
_NAME = re.compile(rb';\s*name="([^"]*)"|;\s*name=([^\s;"]+)', re.IGNORECASE)
MAX_PARTS = 1000
MAX_FIELD_BYTES = 4096


def boundary_of(content_type: bytes) -> bytes | None:
    """The boundary of a Content-Type value."""
    found = _BOUNDARY.search(content_type)
    return None if found is None else found.group(1) or found.group(2)


def find_field(body: bytes, boundary: bytes, name: bytes) -> tuple[int, int] | None:
    """Start and end of a plain field's value in the body; None if there is none of that name."""
    mark = b"--" + boundary
    at = 0 if body.startswith(mark) else body.find(b"\r\n" + mark) + 2
    if at == 1:
        return None
    for _ in range(MAX_PARTS):
        start = at + len(mark)
        if body[start : start + 2] != b"\r\n":
            return None
        end_of_head = body.find(b"\r\n\r\n", start, start + MAX_FIELD_BYTES)
        end = body.find(b"\r\n" + mark, start)
        if end_of_head < 0 or end < end_of_head + 2:
            return None
        if _is_field(body[start:end_of_head], name):
            value = end_of_head + 4
            return (value, end) if value <= end <= value + MAX_FIELD_BYTES else None
        at = end + 2
    return None


def _is_field(head: bytes, name: bytes) -> bool:
    for line in head.split(b"\r\n"):
        if line[:20].lower() == b"content-disposition:":
            found = _NAME.search(line)
            named = found is not None and (found.group(1) or found.group(2)) == name
            return named and b"filename" not in line.lower()
    return False
