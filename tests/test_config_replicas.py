import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import config
from headrace.errors import ConfigError


def test_an_entry_may_be_a_plain_url():
    plain, full = config.parse_replicas(["http://a:1", {"url": "http://b:2", "models": ["m"]}])
    assert (plain.url, plain.models) == ("http://a:1", None)
    assert full.models == ("m",)


@pytest.mark.parametrize(
    "url, spelling, identity",
    [
        ("http://gpu1:8000", "http://gpu1:8000", "gpu1:8000"),
        ("HTTP://GPU1:8000/", "http://gpu1:8000", "gpu1:8000"),
        ("http://gpu1", "http://gpu1", "gpu1:80"),
        ("http://gpu1:80/", "http://gpu1", "gpu1:80"),
        ("https://gpu1", "https://gpu1", "gpu1:443"),
        ("http://gpu1:8000/a/b/", "http://gpu1:8000/a/b", "gpu1:8000/a/b"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ("http://10.0.0.1:8000", "http://10.0.0.1:8000", "10.0.0.1:8000"),
    ],
)
def test_a_url_has_one_spelling_and_an_id(url, spelling, identity):
    (replica,) = config.parse_replicas([url])
    assert (replica.url, replica.id) == (spelling, identity)


@pytest.mark.parametrize(
    "url",
    [
        "not a url",
        "gpu1:8000",
        "ftp://gpu1:8000",
        "http://",
        "http://:8000",
        "http://user:pw@gpu1:8000",
        "http://user@gpu1",
        "http://gpu1:0",
        "http://gpu1:70000",
        "http://gpu1:x",
        "http://gpu1:8000?x=1",
        "http://gpu1:8000#x",
        "http://[::1",
        "http://[zz]:1",
        "http://::1:8000",
        "http://gpu1:8000/a b",
        "http://gpu1:8000/\r\nx",
        "http://gpu\u00e9:8000",
        "http://-gpu:1",
        "",
    ],
)
def test_anything_else_is_refused_with_a_reason(url):
    with pytest.raises(ConfigError) as caught:
        config.parse_replicas([url])
    assert "replicas[0].url" in str(caught.value)
    assert "\n" not in str(caught.value) and "pw" not in str(caught.value)


@given(st.text(max_size=40))
def test_no_text_breaks_the_url_check(text):
    try:
        spelling = config.normalize("http://" + text)
    except ValueError:
        return
    assert config.normalize(spelling) == spelling
    assert config.replica_id(spelling) == config.replica_id("http://" + text)
    assert spelling.isascii() and spelling.isprintable()


def test_the_same_replica_twice_is_an_error():
    for twin in ("http://A:1/", "http://a:1", "https://a:1"):
        with pytest.raises(ConfigError, match="twice"):
            config.parse_replicas(["http://a:1", twin])


def test_a_thousand_and_twenty_four_replicas_are_the_limit():
    urls = [f"http://gpu{number}:8000" for number in range(1100)]
    assert len(config.parse_replicas(urls[:1024])) == 1024
    with pytest.raises(ConfigError, match="1100 entries; at most 1024"):
        config.parse_replicas(urls)


@pytest.mark.parametrize(
    "entry, word",
    [
        ({"url": "http://a:1", "weight": -1}, "weight"),
        ({"url": "http://a:1", "max_concurrency": 0}, "max_concurrency"),
        ({"url": "http://a:1", "models": [1]}, "models"),
        ({"url": "http://a:1", "labels": {"a": 1}}, "labels"),
        ({"url": "http://a:1", "dcgm_url": "host:9400"}, "dcgm_url"),
        ({"url": "http://a:1", "api_key": "a b"}, "api_key"),
        ({"models": ["m"]}, "replicas[0].url: is required"),
        (7, "replicas[0]"),
    ],
)
def test_a_bad_entry_says_which_key(entry, word):
    with pytest.raises(ConfigError) as caught:
        config.parse_replicas([entry])
    assert word in str(caught.value)


def test_gpus_are_indices_or_uuids():
    (replica,) = config.parse_replicas([{"url": "http://a:1", "gpus": [0, "GPU-1"]}])
    assert replica.gpus == (0, "GPU-1")


def test_pages_may_have_a_query():
    page = "http://host:9400/metrics?x=1"
    (replica,) = config.parse_replicas([{"url": "http://a:1", "dcgm_url": page}])
    assert replica.dcgm_url == page


@pytest.mark.parametrize(
    "text", ["- http://a:1\n- {url: http://b:2}\n", "replicas: [http://a:1, http://b:2]\n"]
)
def test_a_file_of_replicas_is_a_list_or_has_the_key(tmp_path, text):
    (tmp_path / "replicas.yaml").write_text(text)
    assert [r.id for r in config.load_replicas(tmp_path / "replicas.yaml")] == ["a:1", "b:2"]


@pytest.mark.parametrize("text", ["- not a url\n", "[", "replicas: 7\n", "servers: []\n"])
def test_a_bad_file_of_replicas_is_an_error(tmp_path, text):
    (tmp_path / "replicas.yaml").write_text(text)
    with pytest.raises(ConfigError):
        config.load_replicas(tmp_path / "replicas.yaml")
    with pytest.raises(ConfigError, match="No such file"):
        config.load_replicas(tmp_path / "none")
