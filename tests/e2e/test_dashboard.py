"""The live page in a real browser: it shows what is, and needs nothing from outside."""

import shutil
import time

import pytest
from gateway_process import Fleet

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is missing")
CHROMIUM = shutil.which("chromium")
DRIVER = shutil.which("chromedriver")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    pytest.mark.skipif(
        CHROMIUM is None or DRIVER is None,
        reason="chromium is missing: install the Debian packages chromium and chromium-driver",
    ),
]
EVIL = "<img src=x onerror=\"document.title='owned'\">"  # a model's name
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync "
    "--disable-background-networking --disable-component-update --disable-dev-shm-usage"
)


@pytest.fixture(scope="module")
def fleet():
    words = ("--model", "tiny", EVIL)
    with Fleet(3, mock=words, serve=("--scrape-interval-secs", "0.5")) as running:
        for n in range(12):
            running.chat(f"question {n}")
            time.sleep(0.03)  # of requests that end together the page shows one
        yield running


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in FLAGS.split():
        options.add_argument(flag)
    options.add_argument(f"--user-data-dir={tmp_path_factory.mktemp('chromium')}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


def opened(browser, fleet, width, height):
    browser.set_window_size(width, height)
    browser.get(f"{fleet.admin}/dashboard")
    deadline = time.monotonic() + 15
    while time.monotonic() < deadline:
        rows = browser.find_elements("css selector", "#replicas tr")
        if len(rows) == 3:
            return rows
        time.sleep(0.1)
    pytest.fail(browser.page_source[:2000])


@pytest.mark.parametrize(("width", "height"), [(1280, 900), (390, 844)])
def test_the_page_shows_numbers_replicas_and_decisions(browser, fleet, width, height):
    rows = opened(browser, fleet, width, height)
    assert all("ready" in row.text for row in rows)
    titles = [e.text for e in browser.find_elements("css selector", ".number h2")]
    assert [t.lower() for t in titles] == [
        "ttft p95",
        "tpot p95",
        "queue depth",
        "prefix hits",
        "gpu use",
    ]
    deadline = time.monotonic() + 10  # the last of the 12 requests may still be on its way up
    while len(browser.find_elements("css selector", "#decisions tr")) < 12:
        assert time.monotonic() < deadline, browser.find_element("id", "decisions").text
        time.sleep(0.1)
    assert "ok 200" in browser.find_element("id", "decisions").text
    # nothing sticks out sideways: the page itself does not scroll, only its tables may
    script = "return document.documentElement.scrollWidth - window.innerWidth"
    assert browser.execute_script(script) <= 0


def test_the_browser_reports_no_violation_and_loads_nothing_from_outside(browser, fleet):
    opened(browser, fleet, 1280, 900)
    time.sleep(1.5)
    problems = [e for e in browser.get_log("browser") if "favicon" not in e["message"]]
    assert problems == []
    script = "return performance.getEntriesByType('resource').map(e => e.name)"
    assert all(name.startswith(fleet.admin) for name in browser.execute_script(script))


def test_names_from_replicas_are_text_and_never_markup(browser, fleet):
    fleet.chat(model=EVIL)
    opened(browser, fleet, 1280, 900)
    deadline = time.monotonic() + 10
    while EVIL not in browser.find_element("id", "decisions").text:
        assert time.monotonic() < deadline, browser.find_element("id", "decisions").text
        time.sleep(0.2)
    assert browser.find_elements("css selector", "img") == []
    assert browser.title == "headrace"


def test_a_sick_replica_is_seen_at_once(browser, fleet):
    opened(browser, fleet, 1280, 900)
    fleet.control(replica=1, action="kill")
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        if "ejected" in browser.find_element("id", "replicas").text:
            break
        time.sleep(0.2)
    assert "ejected" in browser.find_element("id", "replicas").text
    assert "ready → ejected" in browser.find_element("id", "changes").text
