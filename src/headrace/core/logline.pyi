from headrace.core.segment import Segment

class LogLines:
    """Access records out of the rings of a segment, as lines of JSON (csrc/logline.h)."""

    def __init__(
        self,
        policy: bytes,
        *,
        endpoints: list[bytes],
        outcomes: list[bytes],
        reasons: list[bytes],
        models: list[bytes],
        replicas: list[bytes],
    ) -> None:
        """Names by their numbers (replicas: by slot), each as a JSON value that fits on a line."""
    def take(self, segment: Segment, process: int) -> bytes:
        """Lines of the next records that a process has sent up, about 256 KB at most.

        Empty when there are none; raises IndexError for a process that there is not.
        """
