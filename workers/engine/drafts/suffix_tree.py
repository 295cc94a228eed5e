"""A suffix tree of bounded depth over token sequences: how often each run of up to max_depth tokens occurs.

It grows by a token at the end of its open sequence (Ukkonen 1995, but the ends of all suffixes that are not leaves move
on together, so that what they pass is counted), and closed sequences can be taken out again, whole.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias


class Node:
    """An edge, and the edges that follow it. The edge is source[start:end], as far as source has grown.

    What precedes the edge in its source is the path from the root. count: occurrences of the path with the edge's first
    token. latest: the time of the last of them, to compare siblings by.
    """

    __slots__ = ("children", "count", "end", "latest", "source", "start")

    def __init__(self, source: list[int], start: int, end: int, count: int, latest: int) -> None:
        self.source, self.start, self.end = source, start, end
        self.count, self.latest = count, latest
        self.children: dict[int, Node] = {}

    def edge_end(self) -> int:
        return min(self.end, len(self.source))


Point: TypeAlias = tuple[Node, int]  # on the node's edge, before source[int]


class Continuation(NamedTuple):
    """Tokens, and for each the estimated probability that the text goes on with it and with all before it."""

    tokens: list[int]
    probabilities: list[float]


class SuffixTree:
    """Any number of closed sequences, and one open sequence that grows."""

    def __init__(self, max_depth: int) -> None:
        self.max_depth = max_depth
        self.tokens: list[int] = []  # the open sequence
        self.root = Node([], 0, 0, 0, 0)
        self._time = 0
        self.ends: list[Point] = []  # of the open sequence's suffixes that occurred before, as `advance` has them

    def extend(self, tokens: Sequence[int]) -> None:
        """The open sequence goes on with these tokens."""
        for token in tokens:
            self._append(token)

    def close(self) -> list[int]:
        """Ends the open sequence, and begins an empty one. The returned list is what `remove` takes."""
        for index, (node, position) in enumerate(self.ends):
            if position < node.edge_end():
                self._split(node, position, self.ends[index:])
        closed, self.tokens, self.ends = self.tokens, [], []
        return closed

    def advance(self, ends: list[Point], token: int) -> list[Point]:
        """Where the suffixes of a text end once it goes on with the token. ends: the same before it.

        Ends are longest first, of 1 token and more without a gap: where a run occurs, so do its suffixes.
        """
        moved = []
        for node, position in [*ends, (self.root, 0)]:
            source = node.source
            if position < node.end and position < len(source):
                if source[position] == token:
                    moved.append((node, position + 1))
            elif (child := node.children.get(token)) is not None:
                moved.append((child, child.start + 1))
        return moved

    def _append(self, token: int) -> None:
        self.tokens.append(token)
        self._time += 1
        moved = self.advance(self.ends, token)
        self._branch([*self.ends, (self.root, 0)], num_new=len(self.ends) + 1 - len(moved))
        for node, position in moved:
            if position == node.start + 1:
                node.count += 1
                node.latest = self._time
        self.ends = moved[1:] if len(moved) == self.max_depth else moved

    def _branch(self, ends: list[Point], num_new: int) -> None:
        """The longest num_new suffixes, with the latest token, are new: each becomes a leaf."""
        for index, (node, position) in enumerate(ends[:num_new]):
            if position < node.edge_end():
                self._split(node, position, ends[index:])
            self._add_leaf(node, depth=len(ends) - index - 1)

    def _add_leaf(self, parent: Node, depth: int) -> None:
        """A leaf grows by itself, as the open sequence does, down to max_depth."""
        start = len(self.tokens) - 1
        parent.children[self.tokens[start]] = Node(self.tokens, start, start + self.max_depth - depth, 1, self._time)

    def _split(self, node: Node, position: int, ends: list[Point]) -> None:
        """Makes a point on an edge a node. ends: the point and the ends of shorter suffixes, none of them beyond it."""
        num_stopped = sum(other is node for other, _ in ends)
        lower = Node(node.source, position, node.end, node.count - num_stopped, node.latest)
        lower.children = node.children
        node.end, node.children = position, {node.source[position]: lower}

    def remove(self, closed: list[int]) -> None:
        """Takes out a list that `close` returned, the oldest first; the open sequence must be empty."""
        for start in range(len(closed)):
            self._remove_path(closed, start, min(start + self.max_depth, len(closed)))

    def _remove_path(self, closed: list[int], start: int, stop: int) -> None:
        node, position = self.root, start
        path = closed[start:stop]
        while position < stop:
            child = node.children[closed[position]]
            child.count -= 1
            if child.count == 0:
                del node.children[closed[position]]
                break
            length = child.edge_end() - child.start
            if child.source is closed:  # other sequences need the edge; it must not keep this one in memory
                child.source, child.start = path, position - start
                child.end = child.start + length
            node, position = child, position + length
        if node is not self.root:
            _absorb_only_child(node)

    def follow(self, point: Point, max_tokens: int, min_probability: float) -> Continuation:
        """From the point on always the likeliest token, as long as the product of their shares is min_probability."""
        node, position = point
        tokens: list[int] = []
        probabilities: list[float] = []
        probability = 1.0
        while len(tokens) < max_tokens:
            if position == node.edge_end():
                if not node.children:
                    break
                node, share = likeliest(node.children)
                position = node.start
                probability *= share
                if probability < min_probability:
                    break
            on_edge = node.source[position : min(node.edge_end(), position + max_tokens - len(tokens))]
            tokens += on_edge
            probabilities += [probability] * len(on_edge)
            position += len(on_edge)
        return Continuation(tokens, probabilities)


def likeliest(siblings: dict[int, Node]) -> tuple[Node, float]:
    """The node that occurred most often, the latest of equals; and its share of all that went on from its parent."""
    nodes = iter(siblings.values())
    best = next(nodes)
    total = best.count
    for node in nodes:
        total += node.count
        if node.count > best.count or (node.count == best.count and node.latest > best.latest):
            best = node
    return best, best.count / total


def _absorb_only_child(node: Node) -> None:
    """Where all that reaches the node goes on to one child, the two edges become one."""
    if len(node.children) != 1:
        return
    (child,) = node.children.values()
    if child.count == node.count:
        length = node.edge_end() - node.start
        node.source, node.start, node.end = child.source, child.start - length, child.end
        node.children = child.children
