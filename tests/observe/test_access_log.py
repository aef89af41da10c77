import json

from headrace.observe.access_log import AccessLog


def test_every_entry_is_one_line_whatever_it_holds(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path))
    log.add({"id": "a\nb\r{}", "model": "x\u2028y"})
    log.add({"id": "2"})
    log.close()
    lines = path.read_text().split("\n")
    assert [json.loads(line)["id"] for line in lines if line] == ["a\nb\r{}", "2"]


def test_the_file_is_rotated_by_size(tmp_path):
    path = tmp_path / "access.log"
    log = AccessLog(str(path), max_bytes=200)
    for number in range(40):
        log.add({"id": f"request-{number}"})
    log.close()
    assert path.stat().st_size <= 200
    assert len(list(tmp_path.iterdir())) > 1
    assert log.dropped == 0
