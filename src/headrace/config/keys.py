"""How one setting is written down: `Annotated[type, setting(help, flag=...)] = default`.

Flags, environment names, validation and the documentation are all derived from such fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints

import msgspec

Check = Callable[[str], str | None]


class Bounds(NamedTuple):
    """What a value must be besides its type; `check` looks at each item of a list."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    check: Check | None = None

    def refused(self, value: object) -> str | None:
        """Why a value of the right type is outside; None: it is not."""
        if self.check is not None:
            items = value if isinstance(value, tuple) else (value,)
            found = (self.check(item) for item in items if isinstance(item, str))
            return next((reason for reason in found if reason), None)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        if self.ge is not None and value < self.ge:
            return f"must be at least {self.ge:g}"
        if self.gt is not None and value <= self.gt:
            return f"must be above {self.gt:g}"
        if self.le is not None and value > self.le:
            return f"must be at most {self.le:g}"
        return None


class Traits(NamedTuple):
    """What a setting has besides its type, bounds and default."""

    text: str
    flag: str | None
    flag_aliases: tuple[str, ...]
    flag_scale: float
    value_aliases: dict[str, str]
    secret: bool
    bounds: Bounds


class Key(NamedTuple):
    """One setting: its path in the file (`server.port`) and all that is known of it."""

    path: str
    annotation: Any
    default: Any
    traits: Traits

    @property
    def env(self) -> str:
        """The environment variable that sets it."""
        return "HEADRACE_" + self.path.upper().replace(".", "__")

    @property
    def type(self) -> Any:
        """The bare type, without what `Annotated` adds."""
        return bare(self.annotation)


def setting(
    text: str,
    *,
    flag: str | None = None,
    aliases: tuple[str, ...] = (),
    scale: float = 1.0,
    values: dict[str, str] | None = None,
    secret: bool = False,
    ge: float | None = None,
    gt: float | None = None,
    le: float | None = None,
    check: Check | None = None,
) -> msgspec.Meta:
    """Describe a setting.

    Args:
        text: one or two sentences for the documentation and `--help`.
        flag, aliases: the command line names, `--` included.
        scale: what a number given by the flag is multiplied with (0.001: the flag is in ms).
        values: other spellings of values, mapped to ours.
        secret: masked wherever the configuration is shown.
        ge, gt, le: bounds of a number; check: says what is wrong with a text.
    """
    bounds = Bounds(ge, gt, le, check)
    traits = Traits(text, flag, aliases, scale, values or {}, secret, bounds)
    return msgspec.Meta(description=text, extra={"traits": traits})


def bare(annotation: Any) -> Any:
    """The type inside `Annotated[...]`, or the type itself."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def traits_of(annotation: Any) -> Traits | None:
    """What `setting()` has noted on a field; None for a section."""
    if get_origin(annotation) is not Annotated:
        return None
    for meta in get_args(annotation)[1:]:
        if isinstance(meta, msgspec.Meta) and meta.extra and "traits" in meta.extra:
            return meta.extra["traits"]  # type: ignore[no-any-return]
    return None


def is_section(annotation: Any) -> bool:
    """Whether a field holds further settings under its own name."""
    kind = bare(annotation)
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def list_entry(annotation: Any) -> type[msgspec.Struct] | None:
    """The section that each item of a list setting is; None for all other settings."""
    kind = bare(annotation)
    if get_origin(kind) is tuple and is_section(get_args(kind)[0]):
        return get_args(kind)[0]  # type: ignore[no-any-return]
    return None


@functools.cache
def fields(struct: type[msgspec.Struct]) -> dict[str, tuple[Any, Any]]:
    """name -> (annotation, default) of a section, in the order of the source."""
    hints = get_type_hints(struct, include_extras=True)
    return {
        field.name: (hints[field.name], _default(field)) for field in msgspec.structs.fields(struct)
    }


@functools.cache
def required(struct: type[msgspec.Struct]) -> frozenset[str]:
    """The settings of a section that have no default."""
    return frozenset(field.name for field in msgspec.structs.fields(struct) if field.required)


def _default(field: msgspec.structs.FieldInfo) -> Any:
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def walk(struct: type[msgspec.Struct], prefix: str = "") -> Iterator[Key]:
    """Every setting below a section, depth first; list entries are not entered."""
    for name, (annotation, default) in fields(struct).items():
        path = prefix + name
        if is_section(annotation):
            yield from walk(bare(annotation), path + ".")
            continue
        traits = traits_of(annotation)
        if traits is None:
            raise TypeError(f"{path} has no setting()")
        yield Key(path, annotation, default, traits)
