"""Another look at a pod that nobody could take, in case its scheduler heard of freed room first.

kube-scheduler and this process follow the API server each by a watch of its own. A scheduler that
hears first of a pod's end asks at once and is refused by books that are a moment old; it then asks
again only when another pod ends, or after a minute, with newer versions after five. Two pods wait
a moment for a change of the books:

* one that the watch has not brought yet: what ended before it was made may not have come either,
  and has when it comes;
* one that was refused before. One such refusal in ``REST_SECONDS`` waits: the pods that a
  scheduler tries again come together, and the first of them waits for all.

A wait in vain is followed by such a rest, so that a watch that says nothing holds up no scheduler.
"""

import asyncio
from collections import OrderedDict
from typing import Final

from gpucore.units import PodUid

PATIENCE_SECONDS: Final = 0.1
UNSEEN_SECONDS: Final = 0.5
REST_SECONDS: Final = 2.0
REFUSED_LIMIT: Final = 4096


class LateNews:
    """Which refusals wait, and for how long.

    Args:
        patience: seconds a refusal waits at most; of a pod refused before, and of one unseen.
        rest: seconds from one refusal that waits to the next.

    Attributes:
        count: of news so far. Whoever judges notes it first, since judging many nodes gives way
            to news.
    """

    def __init__(
        self,
        *,
        patience: tuple[float, float] = (PATIENCE_SECONDS, UNSEEN_SECONDS),
        rest: float = REST_SECONDS,
    ) -> None:
        self._patience, self._rest = patience, rest
        self._rested = 0.0
        self._refused: OrderedDict[PodUid, None] = OrderedDict()
        self.count = 0
        self._changed = asyncio.Event()

    def change(self) -> None:
        """The books of some node changed, or there is a new pod."""
        self.count += 1
        self._changed.set()

    def deadline(self, uid: PodUid, *, unseen: bool = False) -> float:
        """Until when, by the loop's clock, this refused pod waits for news; 0 where it does not.

        Args:
            unseen: the watch has not brought the pod itself.
        """
        before = uid in self._refused
        self._refused[uid] = None
        self._refused.move_to_end(uid)
        if len(self._refused) > REFUSED_LIMIT:
            self._refused.popitem(last=False)
        now = asyncio.get_running_loop().time()
        if not (before or unseen) or now < self._rested:
            return 0.0
        if not unseen:
            self._rested = now + self._rest
        return now + self._patience[unseen]

    async def heard(self, deadline: float, *, since: int) -> bool:
        """Whether there is news before ``deadline``; returns when there is.

        Args:
            since: the count of news that the refusal knew.
        """
        if not deadline:
            return False
        try:
            async with asyncio.timeout_at(deadline):
                while self.count <= since:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            self._rested = asyncio.get_running_loop().time() + self._rest
            return False
        return True
