"""The HTML report: complete in itself, and it shows what was measured."""

import re

from bench_samples import run_of, sample

from headrace.bench import report
from headrace.bench.summary import Objective, summarise
from headrace.bench.svg import Axis, plot


def document(run, **more):
    found = summarise(run, Objective())
    return {"url": "http://x", "load": "synthetic <1>", "warnings": [], **found, **more}


def test_a_report_needs_no_other_file(tmp_path):
    run = run_of([sample(due_s=i / 10, ttft_s=0.1 + i / 1000, replica="r<1>") for i in range(300)])
    path = tmp_path / "report.html"
    report.write(path, document(run, warnings=["slow & late"]), run.record)
    page = path.read_text()
    assert not re.findall(r"""(?:src|href|url)\s*[=(]""", page)
    assert page.count("<svg") == 4
    assert "synthetic &lt;1&gt;" in page and "r&lt;1&gt;" in page and "slow &amp; late" in page
    assert "$" not in page


def test_a_report_of_nothing_but_failures_says_so(tmp_path):
    failed = sample(error="cut")
    failed.first_token_s = failed.last_token_s = None
    run = run_of([failed])
    path = tmp_path / "report.html"
    report.write(path, document(run), run.record)
    assert path.read_text().count("no data") == 3
    assert "1 × cut" in path.read_text()


def test_capacity_steps_are_plotted(tmp_path):
    run = run_of([sample()])
    step = {"rate": 2.0, "ttft_p50_s": 0.1, "ttft_p99_s": 0.2}
    capacity = {"rate": 2.0, "safe_rate": 1.6, "steps": [step, {**step, "rate": 4.0}]}
    path = tmp_path / "report.html"
    report.write(path, document(run, capacity=capacity), run.record)
    assert "plan with 80 %: 1.60" in path.read_text()
    assert "TTFT at each rate tried" in path.read_text()


def test_points_stay_within_the_frame():
    svg = plot({"a": [(1, 0.001), (2, 5.0), (3, 0.0)]}, Axis("x"), Axis("y", log=True))
    (points,) = re.findall(r'<polyline points="([^"]+)"', svg)
    places = [tuple(map(float, p.split(","))) for p in points.split()]
    assert len(places) == 2  # zero has no place on a logarithmic axis
    assert all(0 <= x <= 560 and 0 <= y <= 300 for x, y in places)
    assert places[0][1] > places[1][1]  # larger is higher up


def test_long_series_keep_their_extremes():
    points = [(i, 1.0) for i in range(100_000)]
    points[54_321] = (54_321, 99.0)
    svg = plot({"a": points}, Axis("x"), Axis("y"))
    assert len(svg) < 20_000
    ys = [float(y) for y in re.findall(r",(\d+\.\d)", svg)]
    assert min(ys) < 20
