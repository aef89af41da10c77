from pathlib import Path

from headrace.observe.docs import render


def test_the_metrics_page_of_the_documentation_is_current():
    page = Path(__file__).parents[2] / "docs" / "metrics.md"
    assert page.read_text() == render()
