"""Reads the settings of a process from its flags and environment variables.

Flags take precedence over variables, and variables over the defaults of the class. Variables that
are no setting are ignored. A list is separated by commas or is a JSON array; its flag may be
repeated.
"""

import argparse
import enum
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar, get_args, get_origin

import msgspec
from msgspec.structs import FieldInfo

BOOLEANS: Final = dict.fromkeys(("true", "t", "yes", "y", "on", "1"), True) | dict.fromkeys(
    ("false", "f", "no", "n", "off", "0"), False
)
"""What the variable of a switch may be, in any case."""

WORDS: Final = {"`int`": "an integer", "`float`": "a number", "`str`": "text"}
"""How an error calls the types of msgspec."""

T = TypeVar("T", bound=msgspec.Struct)


class SettingsError(ValueError):
    """Settings that are wrong or missing.

    Attributes:
        faults: a sentence for each, which names its flag or variable.
    """

    def __init__(self, *faults: str) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Setting(NamedTuple):
    """One setting, as the class describes it.

    Attributes:
        constrained: its type with bounds and description.
        default: ``msgspec.NODEFAULT`` where it is required.
    """

    name: str
    kind: Any
    constrained: Any
    default: Any
    description: str

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def variable(self) -> str:
        """The name in the environment."""
        return self.name.upper()

    @property
    def required(self) -> bool:
        """It has no default."""
        return self.default is msgspec.NODEFAULT

    @property
    def choices(self) -> list[str]:
        """The accepted words; empty where others are accepted too."""
        if isinstance(self.kind, type) and issubclass(self.kind, enum.Enum):
            return [str(member.value) for member in self.kind]
        words = get_args(self.kind)
        return list(words) if words and all(isinstance(word, str) for word in words) else []

    @property
    def is_list(self) -> bool:
        """It takes several values."""
        return get_origin(self.kind) is tuple


def settings_of(cls: type[msgspec.Struct]) -> list[Setting]:
    """All settings of a class whose fields are annotated with ``msgspec.Meta``."""
    return [_setting(field) for field in msgspec.structs.fields(cls)]


def read(
    cls: type[T], arguments: Sequence[str], variables: Mapping[str, str], *, program: str
) -> T:
    """The settings that these arguments and environment variables make.

    Raises:
        SettingsError: a value is not accepted, or a required setting is missing.
        SystemExit: help was requested (status 0), or the arguments are no flags (status 2).
    """
    known = settings_of(cls)
    flags = vars(_parser(program, known).parse_args(arguments))
    environment = {name.lower(): value for name, value in variables.items()}
    values: dict[str, Any] = {}
    faults: list[str] = []
    for setting in known:
        try:
            values[setting.name] = _chosen(setting, flags, environment)
        except SettingsError as error:
            faults += error.faults
    if faults:
        raise SettingsError(*faults)
    return cls(**values)


def _setting(field: FieldInfo) -> Setting:
    kind, meta = get_args(field.type)
    return Setting(field.name, kind, field.type, field.default, meta.description or "")


def _parser(program: str, known: Sequence[Setting]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description="A flag takes precedence over its environment variable, "
        "which is the name in capitals, such as NODE_NAME.",
        allow_abbrev=False,
        argument_default=argparse.SUPPRESS,
    )
    for setting in known:
        parser.add_argument(setting.flag, help=_help(setting), **_options(setting))
    return parser


def _options(setting: Setting) -> dict[str, Any]:
    if setting.kind is bool:
        return {"action": argparse.BooleanOptionalAction}
    action = "append" if setting.is_list else "store"
    return {"action": action, "metavar": _metavar(setting)}


def _metavar(setting: Setting) -> str:
    """The word for the value in the help: its choices or its type."""
    if setting.choices:
        return f"{{{','.join(setting.choices)}}}"
    kind = next(iter(get_args(setting.kind)), setting.kind)
    name = "str" if issubclass(kind, str) else str(kind.__name__)
    return f"{name},..." if setting.is_list else name


def _help(setting: Setting) -> str:
    default = setting.default
    if default is None or default == "":
        return setting.description
    if setting.is_list:
        default = ",".join(map(str, default))
    ending = "required" if setting.required else f"default: {default}"
    return f"{setting.description} ({ending})".replace("%", "%%")


def _chosen(setting: Setting, flags: Mapping[str, Any], environment: Mapping[str, str]) -> Any:
    """The value of the flag, otherwise of the variable, otherwise the default.

    Raises:
        SettingsError: it is not accepted, or there is none.
    """
    if setting.name in flags:
        return _converted(setting, flags[setting.name], source=setting.flag)
    if setting.name in environment:
        return _converted(setting, environment[setting.name], source=setting.variable)
    if setting.required:
        raise SettingsError(f"set {setting.flag} or {setting.variable}: it has no default")
    return setting.default


def _converted(setting: Setting, given: Any, *, source: str) -> Any:
    """The value that the text of a flag or variable stands for.

    Raises:
        SettingsError: it is not accepted.
    """
    try:
        parsed = _parsed(setting, given)
        return msgspec.convert(parsed, setting.constrained, strict=False, dec_hook=_construct)
    except msgspec.MsgspecError as error:
        text = ",".join(given) if isinstance(given, list) else given
        why = _reason(setting, error)
        raise SettingsError(f"{source}: {text!r} is not accepted: {why}") from None


def _parsed(setting: Setting, given: Any) -> Any:
    """The text of a flag or variable in the form that ``msgspec.convert`` takes."""
    if isinstance(given, bool):
        return given
    if setting.is_list:
        texts = given if isinstance(given, list) else [given]
        return [item for text in texts for item in _items(text)]
    if setting.kind is bool:
        return BOOLEANS.get(given.lower(), given)
    if setting.kind in {int, float}:
        return given.strip()
    if isinstance(setting.kind, enum.EnumMeta):
        return setting.kind.__members__.get(given, given)
    return given


def _items(text: str) -> list[Any]:
    if text.lstrip().startswith("["):
        return msgspec.json.decode(text, type=list)
    return [item.strip() for item in text.split(",")]


def _construct(kind: type, value: Any) -> Any:
    """Types that msgspec does not know are made from their text."""
    return kind(value)


def _reason(setting: Setting, error: Exception) -> str:
    """What is accepted instead."""
    if setting.kind is bool:
        return "use true or false"
    if setting.is_list:
        return "use numbers separated by commas, or a JSON array of numbers"
    if setting.choices:
        return f"use one of {', '.join(word or repr(word) for word in setting.choices)}"
    reason = str(error).partition(", got")[0].replace("Expected", "expected")
    for name, words in WORDS.items():
        reason = reason.replace(name, words)
    return reason
