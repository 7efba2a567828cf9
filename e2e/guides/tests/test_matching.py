"""When an output is what a page shows."""

import pytest

from guides.matching import matches

SAME = [
    ((), "anything at all\n"),
    (("NAME   USED", "a      1"), "NAME USED\na    1   \n\n"),
    (("----------", "x"), "------\nx\n"),
    (("pod/... created",), "pod/share-x7 created\n"),
    (("first", "...", "last"), "first\n2\n3\nlast\n"),
    (("first", "...", "last"), "first\nlast\n"),
    (("...", "needle (1+1)", "..."), "a\nneedle (1+1)\n"),
    (("...", "a", "b"), "a\na\nb\n"),
    (('pod "a" deleted from my-team namespace',), 'pod "a" deleted\n'),
    (('job.batch "a" deleted from default namespace',), 'job.batch "a" deleted from x namespace\n'),
]
OTHER = [
    (("a",), ""),
    (("a",), "a\nb\n"),
    (("a", "...", "c"), "a\nb\n"),
    (("1.5",), "125\n"),
    (("a b",), "ab\n"),
    (('pod "a" deleted from my-team namespace',), 'pod "b" deleted from my-team namespace\n'),
]


@pytest.mark.parametrize(("expected", "output"), SAME)
def test_an_output_fits_up_to_spaces_dashes_and_what_is_left_out(
    expected: tuple[str, ...], output: str
) -> None:
    """Widths of columns and elided parts are free."""
    assert matches(expected, output)


@pytest.mark.parametrize(("expected", "output"), OTHER)
def test_an_output_with_something_else_does_not_fit(expected: tuple[str, ...], output: str) -> None:
    """Missing, added and changed text is seen; a dot is a dot."""
    assert not matches(expected, output)
