"""Open files: two for each stream in a gateway."""

import resource


def raise_open_files(wanted: int = 200_000) -> int:
    """Raise this process's limit, which children inherit, as far as it may be; returns it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for limit in (max(wanted, hard), hard):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            return limit
        except (ValueError, PermissionError):  # only root may raise the hard limit
            continue
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
