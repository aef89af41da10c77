"""Where settings come from: the file, then the environment, then flags; later wins."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import yaml

from headrace.config import keys, rules
from headrace.config.reader import Problems, nearest_key, read_section, read_value
from headrace.config.schema import Config, ReplicaConfig
from headrace.errors import ConfigError

PREFIX = "HEADRACE_"
FILE_VARIABLE = "HEADRACE_CONFIG"
REPLICAS_VARIABLE = "HEADRACE_REPLICAS"
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _StrictLoader(Loader):  # type: ignore[misc]
    """YAML in which a key given twice is an error; plain YAML takes the last one silently."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            name = self.construct_object(key_node, deep=True)
            if isinstance(name, str) and name in seen:
                mark = key_node.start_mark
                raise yaml.constructor.ConstructorError(
                    problem=f"key {name!r} is given twice", problem_mark=mark
                )
            seen.add(str(name))
        return super().construct_mapping(node, deep=deep)


def config_path(args: argparse.Namespace, env: Mapping[str, str]) -> Path | None:
    """The configuration file that the flags, else the environment, name."""
    name = getattr(args, "config", None) or env.get(FILE_VARIABLE)
    return Path(name) if name else None


def load(args: argparse.Namespace, env: Mapping[str, str]) -> Config:
    """The effective configuration.

    Args:
        args: parsed with `add_arguments`; only flags that were given are in it.
        env: usually `os.environ`.

    Raises:
        ConfigError: with every mistake of all sources.
    """
    origins: dict[str, str] = {}
    problems = Problems(origins)
    path = config_path(args, env)
    tree: dict[str, Any] = read_file(path, problems) if path else {}
    for place, name, text in _variables(env, problems):
        _put(tree, place, from_text(keys_by_path()[place], text, name, problems))
        origins[place] = name
    for place, value in vars(args).items():
        found = keys_by_path().get(place)
        if found is not None:
            origins[place] = found.traits.flag or place
            _put(tree, place, from_flag(found, value, problems))
    return _finish(tree, problems)


def parse(tree: Mapping[str, Any]) -> Config:
    """A configuration from plain data alone, checked like a file.

    Raises:
        ConfigError: with every mistake.
    """
    return _finish(dict(tree), Problems())


def parse_replicas(entries: object) -> tuple[ReplicaConfig, ...]:
    """Replica entries (URLs or mappings) from plain data, checked like `replicas` of a file.

    Raises:
        ConfigError: with every mistake.
    """
    problems = Problems()
    annotation = keys.fields(Config)["replicas"][0]
    read = read_value(annotation, entries, "replicas", problems)
    if read is not msgspec.UNSET:
        problems.lines.extend(rules.replica_problems(read))
    if problems.lines:
        raise ConfigError(*problems.lines)
    return rules.normalized(read)


def load_replicas(path: Path) -> tuple[ReplicaConfig, ...]:
    """The entries of a file of replicas: a YAML or JSON list, or a mapping with `replicas`.

    Raises:
        ConfigError: with every mistake; also for a file that cannot be read.
    """
    problems = Problems()
    content = _read(path, problems)
    if problems.lines:
        raise ConfigError(*problems.lines)
    if isinstance(content, dict) and set(content) == {"replicas"}:
        content = content["replicas"]
    return parse_replicas([] if content is None else content)


def _finish(tree: dict[str, Any], problems: Problems) -> Config:
    config = read_section(Config, tree, "", problems)
    if not problems.lines:
        config = rules.resolve(config, problems)
        rules.check(config, problems)
    if problems.lines:
        raise ConfigError(*problems.lines)
    return config


def keys_by_path() -> dict[str, keys.Key]:
    """Every setting by its path in the file."""
    return {key.path: key for key in keys.walk(Config)}


def read_file(path: Path, problems: Problems) -> dict[str, Any]:
    """The mapping in a YAML or JSON file; {} and a problem where there is none."""
    tree = _read(path, problems)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        problems.note(str(path), "must hold a mapping of keys at its top")
        return {}
    return tree


def _read(path: Path, problems: Problems) -> object:
    """Whatever a YAML or JSON file holds; None and a problem if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
        tree: object = (
            json.loads(text) if path.suffix == ".json" else yaml.load(text, _StrictLoader)
        )
    except OSError as error:
        problems.note(str(path), f"cannot be read: {error.strerror}")
        return None
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        problems.note(str(path), parse_reason(error))
        return None
    return tree


def parse_reason(error: Exception) -> str:
    """What a parser disliked, by line; never the text around it, which may hold a key."""
    if isinstance(error, UnicodeDecodeError):
        return "is not UTF-8 text"
    if isinstance(error, json.JSONDecodeError):
        return f"line {error.lineno}: {error.msg}"
    mark = getattr(error, "problem_mark", None)
    reason = getattr(error, "problem", None) or "is not YAML"
    return f"line {mark.line + 1}: {reason}" if mark else str(reason)


def _variables(env: Mapping[str, str], problems: Problems) -> list[tuple[str, str, str]]:
    """(path, variable, text) of the variables that are ours; an empty one counts as absent."""
    known = {key.env: key.path for key in keys.walk(Config)} | {REPLICAS_VARIABLE: "replicas"}
    found = []
    for name, text in sorted(env.items()):
        if not text.strip():
            continue
        if name in known:
            found.append((known[name], name, text))
        elif name.startswith(PREFIX) and "__" in name:
            place = name.removeprefix(PREFIX).lower().replace("__", ".")
            siblings = [
                path for path in known.values() if path.split(".")[0] == place.split(".")[0]
            ]
            problems.note(name, f"unknown key {place}; {nearest_key(place, siblings)}")
    return found


def from_text(key: keys.Key, text: str, name: str, problems: Problems) -> object:
    """The YAML value of an environment variable; text where the setting takes text."""
    try:
        value = _number(key.type, text)
        if value is None:
            value = yaml.load(text, _StrictLoader)
    except (ValueError, yaml.YAMLError) as error:
        problems.note(name, f"is not YAML: {parse_reason(error)}")
        return None if key.default is None else key.default
    if key.path == "replicas" and isinstance(value, str):
        return value.replace(",", " ").split()
    if _takes_text(key.type) and not isinstance(value, str | list | dict):
        return text.strip()
    return value


def from_flag(key: keys.Key, value: Any, problems: Problems) -> object:
    """The value of a flag: numbers and booleans as in YAML, text as it is, A=B pairs."""
    if get_origin(key.type) is dict:
        return _pairs(key, value, problems)
    if isinstance(value, list) or _takes_text(key.type):
        return value
    read: object = _number(key.type, value)
    if read is None:
        read = _scalar(value)
    if key.traits.flag_scale != 1 and isinstance(read, int | float):
        return read * key.traits.flag_scale
    return read


def _scalar(text: str) -> object:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        return text
    return value if isinstance(value, bool | int | float) else text


def _pairs(key: keys.Key, words: list[str], problems: Problems) -> dict[str, str]:
    pairs = {}
    for word in words:
        name, separator, value = word.partition("=")
        if not (separator and name and value):
            problems.add(key.path, word, "must be NAME=VALUE")
        elif name in pairs:
            problems.add(key.path, word, f"{name!r} is given twice")
        else:
            pairs[name] = value
    return pairs


def _number(kind: Any, text: str) -> int | float | None:
    """A number where one is wanted; YAML 1.1 itself would read 1e3 as text."""
    options = (kind, *get_args(kind))
    for wanted in (int, float):
        if wanted in options:
            try:
                return wanted(text)
            except ValueError:
                continue
    return None


def _takes_text(kind: Any) -> bool:
    options = get_args(kind) if type(None) in get_args(kind) else (kind,)
    return any(
        option is str
        or (get_origin(option) is tuple and str in get_args(option))
        or all(isinstance(word, str) for word in get_args(option) or [0])
        for option in options
    )


def _put(tree: dict[str, Any], path: str, value: object) -> None:
    *sections, name = path.split(".")
    for step in sections:
        if not isinstance(tree.get(step), dict):
            # A section that is no mapping is reported with the file; flags must not hide it.
            if tree.get(step) is not None:
                return
            tree[step] = {}
        tree = tree[step]
    tree[name] = value
