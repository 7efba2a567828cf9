"""The reason of a node for plain shares of many amounts, as text around the amount."""

from typing import Final

import msgspec

from gpucore.accounting.node_info import NodeInfo
from gpucore.explain.sentences import sentence
from gpucore.scheduling.plain_shares import share_refusal

_MARK: Final = 987_654_321_987
"""An amount that no sentence contains otherwise."""


class ShareSentence(msgspec.Struct, frozen=True):
    """The sentence of a :class:`gpucore.scheduling.plain_shares.ShareRefusal`.

    Attributes:
        least, most: amounts for which it holds.
        before, after: the sentence around the amount.
    """

    least: int
    most: int
    before: str
    after: str

    def of(self, amount: int) -> str:
        """The reason, as :func:`gpucore.explain.sentences.sentence` gives it; else empty."""
        return f"{self.before}{amount}{self.after}" if self.least <= amount <= self.most else ""


def share_sentence(node_info: NodeInfo) -> ShareSentence | None:
    """Why the node cannot take amounts above its largest free share.

    Returns:
        ``None`` where the reason does not follow from the amount alone.
    """
    found = share_refusal(node_info)
    if found is None:
        return None
    text = sentence(msgspec.structs.replace(found.refusal, requested=_MARK))
    before, mark, after = text.partition(str(_MARK))
    if not mark or mark in after:
        return None
    return ShareSentence(found.least, found.most, before, after)
