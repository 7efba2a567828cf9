"""What ResourceClaims consume of each GPU, summed anew at every event of a watch."""

from collections import Counter

from environments import claims
from environments.kubectl import Object


class Consumption:
    """Follows events of claims, as a watch gives them.

    Attributes:
        most: the most GiB at any event, by ``pool/device``.
        events: number of events.
        allocated: UIDs of the claims that were allocated at some time.
    """

    def __init__(self) -> None:
        self.events = 0
        self.most: Counter[str] = Counter()
        self.allocated: set[str] = set()
        self._claims: dict[str, Counter[str]] = {}
        self._sums: Counter[str] = Counter()

    @property
    def total(self) -> int:
        """GiB that all claims consume now."""
        return self._sums.total()

    def take(self, event: Object) -> None:
        """One event of the watch.

        Raises:
            ValueError: the event is an error, so events are missing.
        """
        if event["type"] == "ERROR":
            raise ValueError(f"the watch ended: {event['object']}")
        claim, held = event["object"], Counter[str]()
        uid = claim["metadata"]["uid"]
        if event["type"] != "DELETED":
            for each in claims.results(claim):
                amount = int(each["consumedCapacity"]["memory"].removesuffix("Gi"))
                held[f"{each['pool']}/{each['device']}"] += amount
        self._sums -= self._claims.pop(uid, Counter())
        self._sums += held
        self._claims[uid] = held
        self.events += 1
        if held:
            self.allocated.add(uid)
        self.most |= self._sums
