"""Flags, environment variables and defaults of any class of settings."""

import enum
from pathlib import Path
from typing import Annotated, Literal

import pytest
from msgspec import Meta, Struct

from gpudeviceplugin.command_line import SettingsError, read


class Color(enum.StrEnum):
    """Words of which one is chosen."""

    RED = "red"
    BLUE = "blue"


class Example(Struct, frozen=True, kw_only=True):
    """One setting of each kind."""

    who: Annotated[str, Meta(min_length=1, description="name of the example")]
    count: Annotated[int, Meta(ge=0, le=9, description="number of things")] = 1
    wait_seconds: Annotated[float, Meta(gt=0, description="seconds, at 100 %")] = 1.5
    loud: Annotated[bool, Meta(description="log more")] = False
    place: Annotated[Path | None, Meta(description="a directory; default: none")] = None
    mode: Annotated[Literal["", "fast", "safe"], Meta(description="how it works")] = ""
    color: Annotated[Color, Meta(description="how it looks")] = Color.RED
    codes: Annotated[tuple[int, ...], Meta(description="what is ignored")] = (13, 31)


def example(*flags: str, **variables: str) -> Example:
    """The settings that these make, with a name."""
    return read(Example, ["--who=a", *flags], variables, program="example")


def refused(*flags: str, **variables: str) -> str:
    """Why these flags and variables make none."""
    with pytest.raises(SettingsError) as caught:
        example(*flags, **variables)
    (fault,) = caught.value.faults
    return fault


def test_a_flag_takes_precedence_over_the_variable_and_the_variable_over_the_default() -> None:
    """The order that the documentation promises."""
    assert example().count == 1
    assert example(COUNT="2").count == 2
    assert example("--count=3", COUNT="2").count == 3
    assert example("--count=3", COUNT="wrong").count == 3


def test_a_value_follows_its_flag_or_an_equals_sign() -> None:
    """Both ways of writing; the last of two wins, and a value may begin with a dash."""
    assert example("--wait-seconds", "2").wait_seconds == 2.0
    assert example("--wait-seconds=2", "--wait-seconds=3e-1").wait_seconds == 0.3
    assert example("--place=-x").place == Path("-x")
    assert example("--count", " 4 ").count == 4


def test_a_switch_has_a_flag_for_each_state() -> None:
    """A later flag, and every flag, is stronger than the variable."""
    assert example("--loud").loud is True
    assert example("--loud", "--no-loud").loud is False
    assert example("--no-loud", LOUD="true").loud is False


@pytest.mark.parametrize("word", ["true", "True", "1", "yes", "y", "on", "t"])
def test_the_variable_of_a_switch_may_be_any_usual_word(word: str) -> None:
    """In any case; the opposite of each turns the switch off."""
    opposite = dict(zip("ty1o", ("false", "no", "0", "off"), strict=True))[word[0].lower()]
    assert example(LOUD=word).loud is True
    assert example("--loud").loud is True
    assert example(LOUD=opposite).loud is False
    assert refused(LOUD="perhaps") == "LOUD: 'perhaps' is not accepted: use true or false"


@pytest.mark.parametrize(
    "flags",
    [
        ["--codes=43,45"],
        ["--codes", "43, 45"],
        ["--codes=[43,45]"],
        ["--codes=43", "--codes=45"],
        ["--codes=[43]", "--codes=45"],
    ],
)
def test_a_list_has_commas_or_is_json_or_repeats_its_flag(flags: list[str]) -> None:
    """The chart passes JSON."""
    assert example(*flags).codes == (43, 45)


def test_the_variable_of_a_list_is_json_or_has_commas() -> None:
    """An empty array is an empty list; empty text is a mistake."""
    assert example(CODES="[43,45]").codes == (43, 45)
    assert example(CODES="43,45").codes == (43, 45)
    assert example(CODES="[]").codes == ()
    wanted = "use numbers separated by commas, or a JSON array of numbers"
    for wrong in ("", "x", "[1,", "1,,2", '["x"]', "[1.5]"):
        assert refused(CODES=wrong) == f"CODES: {wrong!r} is not accepted: {wanted}"


def test_a_choice_is_one_of_its_words() -> None:
    """A word may be empty; members of an enumeration also have the names in capitals."""
    assert (example("--mode=safe").mode, example(MODE="fast").mode) == ("safe", "fast")
    assert example("--mode=", MODE="fast").mode == ""
    assert example("--color=blue").color is example("--color=BLUE").color is Color.BLUE
    assert refused("--mode=Fast") == "--mode: 'Fast' is not accepted: use one of '', fast, safe"
    assert refused(COLOR="green") == "COLOR: 'green' is not accepted: use one of red, blue"


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"COUNT": "x"}, "COUNT: 'x' is not accepted: expected an integer"),
        ({"COUNT": "1.5"}, "COUNT: '1.5' is not accepted: expected an integer"),
        ({"COUNT": "-1"}, "COUNT: '-1' is not accepted: expected an integer >= 0"),
        ({"COUNT": "10"}, "COUNT: '10' is not accepted: expected an integer <= 9"),
        ({"WAIT_SECONDS": "0"}, "WAIT_SECONDS: '0' is not accepted: expected a number > 0.0"),
        ({"WAIT_SECONDS": "soon"}, "WAIT_SECONDS: 'soon' is not accepted: expected a number"),
    ],
)
def test_a_number_out_of_its_bounds_is_refused(variables: dict[str, str], sentence: str) -> None:
    """The error names the source of the value and what is accepted."""
    assert refused(**variables) == sentence
    (name, value) = next(iter(variables.items()))
    flag = f"--{name.lower().replace('_', '-')}"
    assert refused(f"{flag}={value}") == sentence.replace(name, flag)


def test_an_empty_variable_is_an_empty_text_and_no_number() -> None:
    """It does not count as absent: a manifest that lost a value should not start."""
    assert example(MODE="").mode == ""
    assert example(PLACE="").place == Path()
    assert refused(COUNT="") == "COUNT: '' is not accepted: expected an integer"
    assert refused(LOUD="") == "LOUD: '' is not accepted: use true or false"


def test_variables_are_found_in_any_case_and_unknown_ones_are_ignored() -> None:
    """The environment of a pod has more variables than settings."""
    made = example(count="2", PATH="/bin", EXAMPLE_PORT="tcp://10.0.0.1:80")
    assert made == Example(who="a", count=2)


def test_all_faults_are_reported_at_once() -> None:
    """A required setting that is missing names its flag and its variable."""
    with pytest.raises(SettingsError) as caught:
        read(Example, ["--count=x"], {"LOUD": "x"}, program="example")
    assert [fault.partition(":")[0] for fault in caught.value.faults] == [
        "set --who or WHO",
        "--count",
        "LOUD",
    ]
    assert str(caught.value) == "; ".join(caught.value.faults)


@pytest.mark.parametrize(
    "flag", ["--coun=1", "--wait_seconds=1", "--loud=true", "--nothing", "stray", "--count"]
)
def test_an_unknown_flag_ends_with_status_two_and_its_name(
    flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Flags are not abbreviated, switches take no value, all others take one."""
    with pytest.raises(SystemExit, match=r"^2$"):
        example(flag)
    assert flag.partition("=")[0] in capsys.readouterr().err.splitlines()[-1]


def test_the_help_has_every_flag_with_its_meaning_and_default(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Without anything that is required."""
    with pytest.raises(SystemExit, match=r"^0$"):
        read(Example, ["--help"], {}, program="example")
    text = " ".join(capsys.readouterr().out.split())
    assert "usage: example" in text
    for words in (
        "--who str name of the example (required)",
        "--count int number of things (default: 1)",
        "--wait-seconds float seconds, at 100 % (default: 1.5)",
        "--loud, --no-loud log more (default: False)",
        "--place Path a directory; default: none --mode",
        "--mode {,fast,safe} how it works --color",
        "--color {red,blue} how it looks (default: red)",
        "--codes int,... what is ignored (default: 13,31)",
    ):
        assert words in text
