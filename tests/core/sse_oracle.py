"""A plain Python reading of event streams: parses each event whole."""

import json
import re

PREAMBLE = {
    "response.created", "response.in_progress", "response.queued", "message_start", "ping",
}  # fmt: skip
END = {"response.completed", "response.incomplete", "message_stop", "response.failed"}
NO_CONTENT = {"content_block_stop", "message_delta", "error", *END}


def events(stream: bytes):
    """(start, end, name, data or None) of each event or comment block that has ended."""
    start, lines, position = 0, [], 0
    for match in re.finditer(rb"([^\r\n]*)(\r\n|\n|\r(?=[^\n]))", stream):
        position = match.end()
        if match[1]:
            lines.append(match[1])
            continue
        if lines:
            name, data = b"", None
            for line in lines:
                field, _, value = line.partition(b":")
                value = value.removeprefix(b" ")
                if field == b"data":
                    data = value if data is None else data + b"\n" + value
                elif field == b"event":
                    name = value
            yield start, position, name.decode(), data
        start, lines = position, []


def finish_reasons(document: dict):
    for choice in document.get("choices") or []:
        yield choice.get("finish_reason")
    delta = document.get("delta")
    yield delta.get("stop_reason") if isinstance(delta, dict) else None
    status = (document.get("response") or {}).get("status")
    yield status if status in ("completed", "incomplete") else None


def has_content(document: dict, kind: str) -> bool:
    if kind in ("content_block_start", "content_block_delta") or any(finish_reasons(document)):
        return True
    if kind.startswith("response.") and kind not in PREAMBLE | END and not kind.endswith(".done"):
        return True
    return any(
        isinstance(choice.get("text"), str)
        or any(value is not None for value in (choice.get("delta") or {}).values())
        for choice in document.get("choices") or []
    )


def classes(name: str, data: bytes | None) -> set[str]:
    if data is None:
        return {"comment"}
    if data == b"[DONE]":
        return {"end"}
    document = json.loads(data)
    kind = document.get("type", name)
    if kind in PREAMBLE:
        return {"preamble"}
    found = {"end"} if kind in END else set()
    if kind in ("error", "response.failed") or (
        document.get("error") is not None and "choices" not in document
    ):
        return found | {"error"}
    if has_content(document, kind):
        found |= {"content"}
    if document.get("usage") and document.get("choices") == []:
        found |= {"usage_only"}
    return found


def usages(document: dict):
    for holder in (document, document.get("message") or {}, document.get("response") or {}):
        if holder.get("usage"):
            yield holder["usage"]


def observe(stream: bytes) -> dict:
    """What EventStream should report of a stream."""
    report = {"events": 0, "content_events": 0, "finishes": 0, "aborted": False, "seen": set()}
    report |= {"head": (0, set()), "last": (0, 0, set()), "usage_span": (0, 0)}
    usage = {"prompt_tokens": -1, "completion_tokens": -1, "cached_tokens": -1}
    for start, end, name, data in events(stream):
        found = classes(name, data)
        report["last"] = (start, end, found)
        if data is None:
            continue
        report["events"] += 1
        report["content_events"] += "content" in found
        report["seen"] |= found
        if report["head"][0] == 0 and "preamble" not in found:
            report["head"] = (end, found)
        if "usage_only" in found:
            report["usage_span"] = (start, end)
        if data == b"[DONE]":
            continue
        document = json.loads(data)
        reasons = [reason for reason in finish_reasons(document) if reason]
        report["finishes"] += len(reasons)
        report["aborted"] |= "abort" in reasons
        for figures in usages(document):
            details = figures.get("prompt_tokens_details") or figures.get("input_tokens_details")
            for key, value in (
                ("prompt_tokens", figures.get("prompt_tokens", figures.get("input_tokens"))),
                (
                    "completion_tokens",
                    figures.get("completion_tokens", figures.get("output_tokens")),
                ),
                ("cached_tokens", (details or {}).get("cached_tokens")),
            ):
                usage[key] = usage[key] if value is None else value
    return report | {"usage": usage}
