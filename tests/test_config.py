import argparse
import json

import pytest
import yaml

from headrace import config
from headrace.config import keys
from headrace.config.schema import Config
from headrace.errors import ConfigError

ONE = {"replicas": ["http://gpu1:8000"]}


def load(*words, env=None):
    parser = argparse.ArgumentParser()
    config.add_arguments(parser)
    return config.load(parser.parse_args(words), env or {})


def written(tmp_path, content, name="headrace.yaml"):
    path = tmp_path / name
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return str(path)


def problems_of(call, *args, **kwargs):
    with pytest.raises(ConfigError) as caught:
        call(*args, **kwargs)
    return list(caught.value.problems)


# -- order of the sources


def test_defaults_are_those_of_the_contract():
    made = config.parse(ONE)
    assert (made.server.host, made.server.port) == ("0.0.0.0", 30000)
    assert (made.server.admin_host, made.server.admin_port) == ("127.0.0.1", 29000)
    assert made.routing.policy == "cost_aware"
    assert made.admission.max_concurrency == 256
    assert made.timeouts.upstream_idle_s == 4
    assert made.retry.max_retries == 1
    assert made.server.max_body_bytes == 268435456
    assert made.server.blocked_paths == ("/v1/load_lora_adapter", "/v1/unload_lora_adapter")


def test_environment_wins_over_the_file_and_flags_win_over_both(tmp_path):
    path = written(tmp_path, {**ONE, "admission": {"max_concurrency": 1, "max_queue": 2}})
    env = {"HEADRACE_ADMISSION__MAX_CONCURRENCY": "11", "HEADRACE_ADMISSION__QUEUE_SIZE": "12"}
    made = load("--config", path, "--queue-size", "100", env=env).admission
    assert (made.max_concurrency, made.max_queue, made.queue_size) == (11, 2, 100)


def test_the_file_may_be_named_by_the_environment_and_the_flag_wins(tmp_path):
    one = written(tmp_path, {**ONE, "server": {"port": 1}}, "one.yaml")
    two = written(tmp_path, {**ONE, "server": {"port": 2}}, "two.yaml")
    env = {"HEADRACE_CONFIG": one}
    assert load(env=env).server.port == 1
    assert load("--config", two, env=env).server.port == 2


def test_only_names_with_two_underscores_are_read_from_the_environment():
    env = {
        "HEADRACE_PORT": "tcp://10.0.0.1:30000",
        "HEADRACE_SERVICE_HOST": "10.0.0.1",
        "HEADRACE_PORT_30000_TCP_ADDR": "10.0.0.1",
        "HEADRACE_REPLICAS": "http://a:1, http://b:2",
    }
    made = load(env=env)
    assert made.server.port == 30000
    assert [replica.url for replica in made.replicas] == ["http://a:1", "http://b:2"]


def test_environment_values_are_yaml():
    env = {
        "HEADRACE_REPLICAS": "[{url: 'http://a:1', weight: 2}]",
        "HEADRACE_SERVER__CORS_ORIGINS": "[https://a, https://b]",
        "HEADRACE_ROUTING__MODEL_ALIASES": "{a: b}",
        "HEADRACE_AUTH__ADMIN_API_KEY": "12345",
        "HEADRACE_AUTH__API_KEYS": "678",
        "HEADRACE_RETRY__BEFORE_FIRST_TOKEN": "true",
        "HEADRACE_DISCOVERY__KUBERNETES__NAMESPACE": "llm",
        "HEADRACE_TIMEOUTS__IDLE_S": "1e2",
        "HEADRACE_SERVER__HOST": "",
    }
    made = load(env=env)
    assert made.replicas[0].weight == 2
    assert made.server.cors_origins == ("https://a", "https://b")
    assert made.routing.model_aliases == {"a": "b"}
    assert (made.auth.admin_api_key, made.auth.api_keys) == ("12345", ("678",))
    assert made.retry.before_first_token is True
    assert made.discovery.kubernetes.namespace == "llm"
    assert made.timeouts.idle_s == 100
    assert made.server.host == "0.0.0.0"


def test_a_misspelt_environment_variable_is_an_error():
    env = {"HEADRACE_REPLICAS": "http://a:1", "HEADRACE_ADMISSION__MAX_QUE": "1"}
    (problem,) = problems_of(load, env=env)
    assert "HEADRACE_ADMISSION__MAX_QUE" in problem and "admission.max_queue" in problem


# -- flags


def test_flags_take_several_values_units_and_bare_booleans():
    made = load(
        *("--worker-urls", "http://a:1", "http://b:2"),
        *("--policy", "roundrobin", "--retry-initial-backoff-ms", "20", "--log-json"),
        *("--model-alias", "short=long", "x=y/z", "--processes", "2"),
        *("--prometheus-port", "29001", "--session-key", "X-Chat", "--access-log"),
        *("--shutdown-grace-period-secs", "7", "--service-discovery", "--selector", "app=vllm"),
    )
    assert [replica.id for replica in made.replicas] == ["a:1", "b:2"]
    assert made.routing.policy == "round_robin"
    assert made.retry.backoff_s == pytest.approx(0.02)
    assert made.routing.model_aliases == {"short": "long", "x": "y/z"}
    assert made.server.processes == 2 and made.server.admin_port == 29001
    assert made.routing.session_headers == ("x-chat",)
    assert made.observability.log_json is True and made.observability.access_log is True
    assert made.server.drain_timeout_s == 7
    assert made.discovery.kubernetes.enabled and made.discovery.kubernetes.selector == {
        "app": "vllm"
    }


def test_a_flag_may_be_repeated():
    made = load("--replicas", "http://a:1", "--replicas", "http://b:2", "--api-key", "1", "2")
    assert len(made.replicas) == 2
    assert made.auth.api_keys == ("1", "2")


def test_the_access_log_may_be_a_file():
    made = load("--replicas", "http://a:1", "--access-log", "/var/log/headrace.jsonl")
    assert made.observability.access_log == "/var/log/headrace.jsonl"


def test_a_bad_flag_value_names_flag_key_and_value():
    (problem,) = problems_of(load, "--replicas", "http://a:1", "--port", "eleven")
    assert all(word in problem for word in ("server.port", "--port", "eleven"))
    (problem,) = problems_of(load, "--replicas", "http://a:1", "--model-alias", "short")
    assert "short" in problem and "--model-alias" in problem


@pytest.mark.parametrize(
    "foreign, ours", [("--static-backends", "--replicas"), ("--routing-logic", "--policy")]
)
def test_a_flag_of_another_router_names_ours(foreign, ours, capsys):
    with pytest.raises(SystemExit) as caught:
        load(foreign, "x")
    text = capsys.readouterr().err
    assert caught.value.code == 2 and foreign in text and ours in text


def test_every_flag_and_every_path_exists_once():
    found = list(keys.walk(Config))
    flags = [word for key in found for word in (key.traits.flag, *key.traits.flag_aliases) if word]
    assert len(set(flags)) == len(flags)
    assert len({key.env for key in found}) == len(found)


def test_every_default_passes_its_own_check():
    for key in keys.walk(Config):
        if key.path == "replicas":
            continue
        *sections, name = key.path.split(".")
        tree: dict = {}
        inner = tree
        for step in sections:
            inner = inner.setdefault(step, {})
        inner[name] = list(key.default) if isinstance(key.default, tuple) else key.default
        config.parse({**ONE, **tree})


# -- mistakes


@pytest.mark.parametrize(
    "tree, bad, near",
    [
        ({"admission": {"max_concurency": 5}}, "admission.max_concurency", "max_concurrency"),
        ({"routting": {"policy": "random"}}, "routting", "routing"),
        ({"replicas": [{"url": "http://a:1", "max_que": 1}]}, "[0].max_que", "[0].max_queue"),
        ({"server": {"max_concurrency": 5}}, "server.max_concurrency", "admission.max_concurrency"),
        ({"discovery": {"kubernetes": {"namspace": "x"}}}, "kubernetes.namspace", "namespace"),
        ({"server": {"zzz": 1}}, "server.zzz", "admin_port"),
    ],
)
def test_an_unknown_key_is_named_with_its_path_and_the_nearest(tree, bad, near):
    (problem,) = problems_of(config.parse, {**ONE, **tree})
    assert bad in problem and near in problem


@pytest.mark.parametrize(
    "tree, path, value",
    [
        ({"server": {"port": "eleven"}}, "server.port", "eleven"),
        ({"server": {"port": 70000}}, "server.port", "70000"),
        ({"server": {"port": True}}, "server.port", "True"),
        ({"server": None, "routing": {"policy": "quantum"}}, "routing.policy", "quantum"),
        ({"admission": {"overload_ratio": -3}}, "admission.overload_ratio", "-3"),
        ({"admission": {"max_queue": 1 << 60}}, "admission.max_queue", str(1 << 60)),
        ({"timeouts": {"idle_s": float("nan")}}, "timeouts.idle_s", "nan"),
        ({"timeouts": {"idle_s": float("inf")}}, "timeouts.idle_s", "inf"),
        ({"timeouts": {"connect_s": 1e300}}, "timeouts.connect_s", "1e+300"),
        ({"retry": {"max_retries": 4}}, "retry.max_retries", "4"),
        ({"health": {"path": "health"}}, "health.path", "health"),
        ({"server": []}, "server", "[]"),
        ({"server": {"host": "a\nb"}}, "server.host", r"a\nb"),
        ({"server": {"cors_origins": ["app.test"]}}, "server.cors_origins", "app.test"),
        ({"server": {"request_id_headers": ["x y"]}}, "request_id_headers", "x y"),
        ({"routing": {"model_aliases": {"a": "b", "b": "c"}}}, "model_aliases", "no chains"),
        ({"auth": {"replica_networks": ["10.0.0.0/33"]}}, "replica_networks", "10.0.0.0/33"),
        ({"server": {"tls_cert": "/none.pem"}}, "server.tls_cert", "server.tls_key"),
        ({"server": {"port": 1, "admin_port": 1}}, "server.admin_port", "1"),
        ({"control": {"scrape_interval_s": 9}}, "control.stale_after_s", "9"),
        ({"autoscale": {"min_replicas": 3, "max_replicas": 2}}, "autoscale.min_replicas", "3"),
        ({"discovery": {"dns": [{"name": "gpu"}]}}, "discovery.dns", "port"),
        ({"discovery": {"dns": [{"port": 80}]}}, "discovery.dns[0].name", "required"),
    ],
)
def test_a_bad_value_is_named_with_key_value_and_reason(tree, path, value):
    problems = problems_of(config.parse, {**ONE, **tree})
    assert any(path in problem and value in problem for problem in problems), problems


def test_all_mistakes_of_a_file_are_told_at_once(tmp_path):
    path = written(
        tmp_path,
        {
            "replicas": ["http://a:1", "not a url", {"weight": 1}],
            "server": {"port": "x", "prot": 1},
            "retry": {"max_retries": 9},
        },
    )
    problems = "\n".join(problems_of(load, "--config", path, "--policy", "quantum"))
    for word in ("not a url", "replicas[2].url", "server.port", "server.prot", "max_retries"):
        assert word in problems
    assert "quantum" in problems


def test_a_near_miss_of_a_policy_is_named():
    (problem,) = problems_of(config.parse, {**ONE, "routing": {"policy": "cache_awar"}})
    assert "nearest: cache_aware" in problem


@pytest.mark.parametrize(
    "text, word",
    [
        ("replicas: [", "line "),
        ("server: {port: 1}\nserver: {port: 2}\n", "given twice"),
        ("- a\n- b\n", "mapping"),
        ("server: {port: 1}\n---\na: 1\n", "line"),
    ],
)
def test_a_file_that_is_no_configuration_says_why(tmp_path, text, word):
    problems = problems_of(load, "--config", written(tmp_path, text))
    assert word in problems[0] and "headrace.yaml" in problems[0]


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    assert "No such file" in problems_of(load, "--config", str(tmp_path / "none"))[0]
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    assert "UTF-8" in problems_of(load, "--config", str(tmp_path / "binary"))[0]


def test_without_any_source_of_replicas_nothing_starts():
    (problem,) = problems_of(load)
    assert "--replicas" in problem
    assert load("--service-discovery").replicas == ()


def test_an_admin_port_that_others_reach_needs_a_key():
    (problem,) = problems_of(load, "--replicas", "http://a:1", "--admin-host", "0.0.0.0")
    assert "admin_api_key" in problem
    for host in ("::1", "127.0.0.9", "localhost"):
        load("--replicas", "http://a:1", "--admin-host", host)


# -- keys


def test_the_key_file_adds_keys_and_an_empty_one_is_refused(tmp_path):
    keys_path = written(tmp_path, "# ours\none\n\ntwo\n", "keys")
    made = config.parse({**ONE, "auth": {"api_keys": ["zero"], "api_keys_file": keys_path}})
    assert made.auth.api_keys == ("zero", "one", "two")
    empty = written(tmp_path, "# none\n", "empty")
    (problem,) = problems_of(config.parse, {**ONE, "auth": {"api_keys_file": empty}})
    assert "holds no key" in problem


def test_secrets_are_masked_in_what_is_shown(tmp_path):
    made = config.parse(
        {
            "replicas": [{"url": "http://a:1", "api_key": "secret-1"}],
            "auth": {"api_keys": ["secret-2"], "admin_api_key": "secret-3"},
        }
    )
    shown = json.dumps(config.masked(made))
    assert "secret" not in shown and shown.count("***") == 3
    assert "http://a:1" in shown


def test_secrets_do_not_stand_in_errors(tmp_path):
    text = (
        "replicas: ['http://u:secret-0@a:1']\nauth:\n  admin_api_key: [secret-1]\n  api_keys: 's é'"
    )
    problems = "\n".join(problems_of(load, "--config", written(tmp_path, text)))
    assert "secret" not in problems and "s é" not in problems
    broken = "auth: {admin_api_key: 'hunter2\n"
    assert "hunter2" not in "\n".join(problems_of(load, "--config", written(tmp_path, broken)))


# -- the tree


def test_a_configuration_is_frozen():
    made = config.parse(ONE)
    with pytest.raises(AttributeError):
        made.server.port = 1


def test_processes_auto_is_the_cpus_up_to_eight(monkeypatch, tmp_path):
    server = config.parse(ONE).server
    no_limit = tmp_path / "none"
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(3)))
    assert config.process_count(server, no_limit) == 3
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    assert config.process_count(server, no_limit) == 8
    assert config.process_count(load("--replicas", "http://a:1", "--processes", "0").server) == 0


@pytest.mark.parametrize(
    "text, count", [("max 100000", 8), ("250000 100000", 3), ("10000 100000", 1), ("odd", 8)]
)
def test_processes_auto_respects_the_limit_of_a_container(monkeypatch, tmp_path, text, count):
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)))
    (tmp_path / "cpu.max").write_text(text + "\n")
    assert config.process_count(config.parse(ONE).server, tmp_path / "cpu.max") == count


def test_the_effective_configuration_reads_back_to_the_same():
    made = load("--replicas", "http://a:1", "--model-alias", "a=b", "--port", "8080")
    shown = yaml.safe_load(yaml.safe_dump(config.masked(made)))
    assert config.parse(shown) == made
