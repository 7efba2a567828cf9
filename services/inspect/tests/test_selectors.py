"""Label selectors as kubectl spells them."""

import pytest

from gpuinspect.commands.options.selecting import SelectorError, parse

LABELS = {"gpu": "t4", "zone": "a"}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("gpu=t4", True),
        ("gpu==t4", True),
        ("gpu == t4", True),
        ("gpu==l4", False),
        ("gpu!=t4", False),
        ("gpu!=l4", True),
        ("missing!=x", True),
        ("missing=x", False),
        ("gpu in (l4, t4)", True),
        ("gpu in (l4)", False),
        ("gpu notin (l4)", True),
        ("gpu notin (l4, t4)", False),
        ("missing notin (x)", True),
        ("gpu", True),
        ("missing", False),
        ("!missing", True),
        ("!gpu", False),
        ("gpu=t4,zone=a", True),
        ("gpu=t4,zone=b", False),
        ("zone in (a,b),gpu!=l4", True),
    ],
)
def test_labels_match_as_the_api_server_matches_them(text: str, matches: bool) -> None:
    """All terms hold; a missing label satisfies != and notin."""
    assert parse(text)(LABELS) is matches


@pytest.mark.parametrize("text", ["a b", "=x", "a in b", "a in (b", "(a)", "a>5", "a&b", "a='b'"])
def test_other_text_is_refused(text: str) -> None:
    """With the forms that there are."""
    with pytest.raises(SelectorError, match="is not a label selector"):
        parse(text)
