"""A queue in which identities take turns, however many items each of them has waiting."""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items of identities, in order of arrival for each of them.

    The next item is of the identity with the fewest running items; identities with equally many
    take turns. An identity may thus fill the whole queue but holds nobody else up. Queues may share
    what is ``running``, by identity.
    """

    def __init__(self, running: Counter[str] | None = None) -> None:
        self._running: Counter[str] = Counter() if running is None else running
        self._waiting: OrderedDict[str, deque[T]] = OrderedDict()
        """The items by identity; of two identities with equally many running items, the first is
        next."""
        self._num_waiting = 0

    def __len__(self) -> int:
        return self._num_waiting

    @property
    def num_running(self) -> int:
        """The number of items that have begun and not ended."""
        return self._running.total()

    @property
    def next_identity(self) -> str:
        """The identity of the next item. Raises ``ValueError`` if there is none."""
        return min(self._waiting, key=self._running.__getitem__)

    @property
    def longest_identity(self) -> str:
        """The identity with the most items. Raises ``ValueError`` if there is none."""
        return max(self._waiting, key=lambda identity: len(self._waiting[identity]))

    def begun(self, identity: str) -> None:
        """Record that an item of ``identity`` has begun."""
        self._running[identity] += 1

    def ended(self, identity: str) -> None:
        """Record that an item of ``identity`` has ended."""
        self._running[identity] -= 1
        if not self._running[identity]:
            del self._running[identity]

    def append(self, identity: str, item: T) -> None:
        """Add an item."""
        self._waiting.setdefault(identity, deque()).append(item)
        self._num_waiting += 1

    def pop(self) -> tuple[str, T]:
        """Remove and return the next item, which has not begun thereby, with its identity. Raises
        ``ValueError`` if there is none."""
        identity = self.next_identity
        item = self._waiting[identity][0]
        self._waiting.move_to_end(identity)
        self.remove(identity, item)
        return identity, item

    def pop_longest(self) -> T:
        """Remove and return the last item of the identity with the most items (longest queue drop).
        Raises ``ValueError`` if there is none."""
        identity = self.longest_identity
        item = self._waiting[identity][-1]
        self.remove(identity, item)
        return item

    def is_crowded_by_others(self, identity: str) -> bool:
        """Return whether another identity would have more items even if ``identity`` had one more,
        so that one of them should make room for it."""
        if not self._waiting:
            return False
        return len(self._waiting[self.longest_identity]) > self.num_waiting(identity) + 1

    def remove(self, identity: str, item: T) -> bool:
        """Remove an item and return whether it was waiting."""
        items = self._waiting.get(identity)
        if items is None or item not in items:
            return False
        items.remove(item)
        self._num_waiting -= 1
        if not items:
            del self._waiting[identity]
        return True

    def num_waiting(self, identity: str) -> int:
        """Return the number of items of ``identity``."""
        return len(self._waiting.get(identity, ()))

    def num_before(self, identity: str, num_elsewhere: int = 0) -> int:
        """Return how many items would begin before one that ``identity`` adds now, if none ends
        sooner than another: those with which their identity has at most as many as this one.
        ``num_elsewhere`` of its items wait in another queue and begin before."""
        level = self._running[identity] + self.num_waiting(identity) + num_elsewhere
        return sum(
            min(len(items), max(0, level + 1 - self._running[other]))
            for other, items in self._waiting.items()
        )
