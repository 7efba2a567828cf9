"""The reference pages are what their generators write now."""

import re

import commandpage
import namepage


def test_every_flag_of_every_program_is_on_its_page_as_it_is() -> None:
    """docs/reference/commands.md is what `python docs/generators/commandpage.py` writes."""
    assert commandpage.PAGE.read_text() == commandpage.page()


def test_every_name_on_the_cluster_is_on_its_page_with_a_word_about_it() -> None:
    """docs/reference/names.md is what `python docs/generators/namepage.py` writes."""
    assert namepage.PAGE.read_text() == namepage.page()


def test_the_page_of_commands_knows_each_command_that_help_lists() -> None:
    """The walk over the command tree leaves none out."""
    text = commandpage.PAGE.read_text()
    headings = set(re.findall(r"^## (\S.*)$", text, re.MULTILINE))
    expected = {"gpushare inspect", "gpushare top node", "gpushare explain pod", "gpushare doctor"}
    assert expected <= headings
    assert {"gpushare-extender", "gpushare-device-plugin"} <= headings
