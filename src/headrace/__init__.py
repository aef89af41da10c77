"""headrace: an LLM inference gateway and its router as a library."""

__version__ = "0.1.0"
