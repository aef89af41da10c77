import json

import pytest
import yaml

from headrace import __version__
from headrace.cli import main


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "headrace.yaml"
        path.write_text(text)
        return str(path)

    return write


def test_a_good_file_is_shown_with_its_defaults(file, capsys):
    path = file("replicas: [http://a:1]\nadmission: {max_concurrency: 77}\n")
    assert main(["check", "--config", path]) == 0
    shown = yaml.safe_load(capsys.readouterr().out)
    assert shown["admission"]["max_concurrency"] == 77
    assert shown["admission"]["overload_ratio"] == 0.8
    assert shown["replicas"][0]["url"] == "http://a:1"


def test_json_has_version_command_and_config(file, capsys, monkeypatch):
    monkeypatch.setenv("HEADRACE_ADMISSION__MAX_CONCURRENCY", "78")
    assert main(["check", "--config", file("replicas: [http://a:1]\n"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["headrace"], shown["command"]) == (__version__, "check")
    assert shown["config"]["admission"]["max_concurrency"] == 78


def test_each_mistake_has_a_line_and_the_code_is_2(file, capsys):
    path = file("replicas: [http://a:1]\nserver: {port: eleven, prot: 1}\n")
    assert main(["check", "--config", path]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 2
    assert "'eleven'" in err and "server.prot" in err


def test_json_lists_the_mistakes(file, capsys):
    assert main(["check", "--config", file("no_such: 1\n"), "--json"]) == 2
    assert any("no_such" in line for line in json.loads(capsys.readouterr().out)["problems"])
