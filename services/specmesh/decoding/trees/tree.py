"""The tree of draft tokens below a prefix."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from specmesh.decoding.errors import InvalidField


@dataclass(frozen=True, slots=True)
class TokenTree:
    """Draft tokens hanging from a prefix, numbered as in tokens.proto.

    Node 0 stands for the end of the prefix and carries no token; node k (from 1) carries
    ``token_ids[k - 1]`` and hangs from ``parents[k - 1]``, which comes before k. Siblings
    carry different tokens. Otherwise construction raises ``InvalidField``.
    """

    token_ids: tuple[int, ...]
    parents: tuple[int, ...]
    depths: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The number of tokens that lead to each node, ``[len(tree) + 1]``: node 0 has depth 0."""
    _children: tuple[tuple[int, ...], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.token_ids) != len(self.parents):
            raise InvalidField(
                "tree.parents",
                f"holds {len(self.parents)} entries for {len(self.token_ids)} tokens",
            )
        size = len(self.token_ids)
        if self.parents == tuple(range(size)):  # a chain, as most trees are
            object.__setattr__(self, "depths", tuple(range(size + 1)))
            object.__setattr__(self, "_children", (*zip(range(1, size + 1)), ()))
            return
        depths = [0]
        children: list[list[int]] = [[] for _ in range(size + 1)]
        for node, parent in enumerate(self.parents, start=1):
            if not 0 <= parent < node:
                raise InvalidField(
                    "tree.parents", f"node {node} names {parent}, which does not come before it"
                )
            depths.append(depths[parent] + 1)
            children[parent].append(node)
        if len(set(zip(self.parents, self.token_ids, strict=True))) != size:
            raise InvalidField("tree.token_ids", "two children of one node carry the same token")
        object.__setattr__(self, "depths", tuple(depths))
        object.__setattr__(self, "_children", tuple(map(tuple, children)))

    @classmethod
    def chain(cls, token_ids: Iterable[int]) -> TokenTree:
        """Return the tree without branches that carries ``token_ids`` downwards."""
        tokens = tuple(token_ids)
        return cls(tokens, tuple(range(len(tokens))))

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def is_chain(self) -> bool:
        """True if every node hangs from the one before it."""
        return self.depths[-1] == len(self)

    def depth(self, node: int) -> int:
        """Return the number of tokens that lead from the prefix to ``node``."""
        return self.depths[node]

    def children(self, node: int) -> tuple[int, ...]:
        """Return the nodes that hang from ``node``, in the order they are listed."""
        return self._children[node]

    def child_with(self, node: int, token_id: int) -> int | None:
        """Return the child of ``node`` that carries ``token_id``; None if there is none."""
        for child in self._children[node]:
            if self.token_ids[child - 1] == token_id:
                return child
        return None

    def follow(self, token_ids: Iterable[int]) -> tuple[int, ...]:
        """Return the nodes that carry ``token_ids`` from the prefix downwards, as far as there are
        any."""
        nodes: list[int] = []
        for token in token_ids:
            child = self.child_with(nodes[-1] if nodes else 0, token)
            if child is None:
                break
            nodes.append(child)
        return tuple(nodes)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the prefix down to ``node``: without node 0, with ``node``."""
        upwards = []
        while node:
            upwards.append(node)
            node = self.parents[node - 1]
        return tuple(reversed(upwards))

    def tokens_on(self, path: Iterable[int]) -> tuple[int, ...]:
        """Return the token of each node of ``path``; node 0 has none and must not be on it."""
        return tuple([self.token_ids[node - 1] for node in path])

    def extend(self, token_ids: Sequence[int], parents: Sequence[int]) -> TokenTree:
        """Return this tree with more nodes, whose numbers continue its own."""
        return TokenTree((*self.token_ids, *token_ids), (*self.parents, *parents))


EMPTY = TokenTree((), ())
"""The tree without any draft token."""
