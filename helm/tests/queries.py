"""Which metrics a PromQL expression requests: enough of the language to leave out all else."""

import re

_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')
_LABELS = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_GROUPING = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)")
_NAME = re.compile(r"(?<![\w.:$])[a-zA-Z_:][\w:]*\b(?!\s*\()")
_WORDS = {"and", "or", "unless", "offset", "bool", "by", "without", "on"}


def metrics_of(expression: str) -> set[str]:
    """Names of all metrics in it."""
    text = expression
    for noise in (_STRING, _LABELS, _GROUPING):
        text = noise.sub(" ", text)
    return set(_NAME.findall(text)) - _WORDS
