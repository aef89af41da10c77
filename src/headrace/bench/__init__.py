"""Load harness against any OpenAI-compatible URL."""
