"""The slots of a node: which of them runs use."""


class Slots:
    """The slots of a node, numbered from 0. A trainer has its own; they are given back when its run has left no trace."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = set(range(count))

    def take(self, count: int) -> tuple[int, ...] | None:
        """Take the lowest free slots; None while there are fewer."""
        if count > len(self._free):
            return None
        taken = tuple(sorted(self._free)[:count])
        self._free.difference_update(taken)
        return taken

    def give_back(self, taken: tuple[int, ...]) -> None:
        self._free.update(taken)
