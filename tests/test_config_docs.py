from pathlib import Path

from headrace.config import docs, keys
from headrace.config.schema import Config

PAGE = Path(__file__).parent.parent / "docs" / "configuration.md"


def test_the_page_is_current():
    assert PAGE.read_text() == docs.render(), (
        "run: python -m headrace.config > docs/configuration.md"
    )


def test_the_page_names_every_key_and_flag():
    page = docs.render()
    for key in keys.walk(Config):
        assert f"| `{key.path}` |" in page
        assert key.traits.flag is None or f"`{key.traits.flag}`" in page
