"""What a test changes of the rules is their patience alone."""

import yaml

from environments.prometheus import RULES, impatient


def test_only_patience_is_taken_from_the_rules() -> None:
    """Every rule is as the chart has it, but for its `for`, of which there were some."""
    shipped = yaml.safe_load(RULES.read_text())["groups"]
    hasty = yaml.safe_load(impatient(RULES.read_text()))["groups"]
    patience = [rule.pop("for", None) for group in shipped for rule in group["rules"]]
    assert any(patience)
    assert hasty == shipped
