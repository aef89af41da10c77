import importlib.util
import subprocess
import sys

import pytest

from headrace import __version__, cli


def test_version(capsys):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0 and __version__ in capsys.readouterr().out


def test_no_command_and_an_unknown_one_are_bad_usage(capsys):
    for words in ([], ["nope"], ["check", "--no-such-flag"]):
        with pytest.raises(SystemExit) as caught:
            cli.main(words)
        assert caught.value.code == 2
    assert "--no-such-flag" in capsys.readouterr().err


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example(name, capsys):
    if importlib.util.find_spec(cli.COMMANDS[name][0]) is None:
        pytest.skip(f"{cli.COMMANDS[name][0]} is not part of this build")
    with pytest.raises(SystemExit) as caught:
        cli.main([name, "--help"])
    assert caught.value.code == 0
    assert f"\n  headrace {name} " in capsys.readouterr().out


def test_python_dash_m_is_the_command():
    words = [sys.executable, "-m", "headrace", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"headrace {__version__}"
