"""The tokens of one request in its trace: numbers that show the tree without the text.

Every token after a given beginning has a number of its own, counted from 1, whichever draft or
verification it is part of; 0 stands for the last token committed when the trace began. A trace thus
shows what was drafted, judged and committed but no content, which is added only if the operator
asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from opentelemetry import trace
from opentelemetry.util.types import AttributeValue

from specmesh.decoding.acceptance import Verdict
from specmesh.decoding.trees.tree import TokenTree
from specmesh.orchestrator.strategies.commands import Commit
from specmesh.serving import conventions as names

Attributes = Mapping[str, AttributeValue]


class TracedTokens:
    """Numbers the tokens that follow the first ``num_known`` of an answer, prompt included.

    ``text`` returns the bytes of a token; None keeps texts out of the trace.
    """

    def __init__(self, num_known: int, text: Callable[[int], bytes] | None) -> None:
        self._num_known = num_known
        self._text = text
        self._committed = [0]
        self._numbers: dict[tuple[int, int], int] = {}

    @classmethod
    def if_recorded(
        cls, num_known: int, text: Callable[[int], bytes] | None
    ) -> TracedTokens | None:
        """Return an instance, or None if the current span is not recorded."""
        return cls(num_known, text) if trace.get_current_span().is_recording() else None

    def drafted(
        self, num_committed: int, path: Sequence[int], tree: TokenTree, num_given: int
    ) -> Attributes:
        """Describe a draft: the nodes of ``tree`` after the ``num_given`` the drafter was sent."""
        numbers = self._tree(self._root(num_committed, path), tree)
        new = range(num_given, len(tree))
        return self._described(numbers, tree, new)

    def judged(
        self, num_committed: int, path: Sequence[int], tree: TokenTree, verdict: Verdict
    ) -> Attributes:
        """Describe a verification: its tree and the target's verdict."""
        numbers = self._tree(self._root(num_committed, path), tree)
        accepted = [numbers[node] for node in verdict.accepted_nodes]
        last = accepted[-1] if accepted else numbers[0]
        return {
            **self._described(numbers, tree, range(len(tree))),
            names.VERDICT_ACCEPTED: accepted,
            names.VERDICT_AFTER: last,
            names.VERDICT_NEXT: self._number(last, verdict.next_token),
            names.VERDICT_RECOVERED: verdict.recovered,
        }

    def committed(self, commit: Commit) -> Attributes:
        """Commit the tokens of a round and describe them."""
        for token in commit.token_ids:
            self._committed.append(self._number(self._committed[-1], token))
        nodes = self._committed[len(self._committed) - len(commit.token_ids) :]
        return {
            names.COMMITTED_NODES: nodes,
            names.COMMITTED_KINDS: [kind.name.lower() for kind in commit.kinds],
            **self._texts(names.COMMITTED_TEXTS, commit.token_ids),
        }

    def _described(
        self, numbers: Sequence[int], tree: TokenTree, chosen: Iterable[int]
    ) -> Attributes:
        chosen = list(chosen)
        return {
            names.TREE_NODES: [numbers[index + 1] for index in chosen],
            names.TREE_PARENTS: [numbers[tree.parents[index]] for index in chosen],
            **self._texts(names.TREE_TEXTS, [tree.token_ids[index] for index in chosen]),
        }

    def _root(self, num_committed: int, path: Sequence[int]) -> int:
        """Return the number of the last token before a command's tree."""
        number = self._committed[num_committed - self._num_known]
        for token in path:
            number = self._number(number, token)
        return number

    def _tree(self, root: int, tree: TokenTree) -> list[int]:
        """Return the numbers of ``tree``'s nodes, ``root`` first."""
        numbers = [root]
        for token, parent in zip(tree.token_ids, tree.parents, strict=True):
            numbers.append(self._number(numbers[parent], token))
        return numbers

    def _number(self, parent: int, token: int) -> int:
        return self._numbers.setdefault((parent, token), len(self._numbers) + 1)

    def _texts(self, name: str, token_ids: Iterable[int]) -> Attributes:
        if self._text is None:
            return {}
        return {name: [self._text(token).decode(errors="replace") for token in token_ids]}
