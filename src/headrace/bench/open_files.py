"""Open files: one for each request under way."""

import resource


def raise_open_files() -> int:
    """Raise the limit of this process to what it may be at most; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
