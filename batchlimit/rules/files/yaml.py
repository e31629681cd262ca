"""A YAML text, and where in it each key and value stands."""

from collections.abc import Iterable
from typing import Any

from batchlimit.base.lazy import needed
from batchlimit.rules.files.loader import Document, Path, Position, SyntaxProblem

with needed("a file of rules in YAML, not in TOML,", "yaml", "PyYAML"):
    import yaml


_MOST = 1_000_000
"""Parts that a text has at most, where those that aliases stand for are counted each time."""


class _Loader(yaml.SafeLoader):
    """Raises SyntaxProblem for a key that stands twice in one mapping, and for aliases that make a text too large."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self._sizes, self._size = dict[int, int](), 0

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        before = self._size
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        node = super().compose_node(parent, index)
        if not isinstance(event, yaml.AliasEvent):
            self._size += 1
            self._sizes[id(node)] = self._size - before
            return node
        self._size += self._sizes.get(id(node), 0)  # 0: it stands in itself
        if self._size > _MOST:
            raise SyntaxProblem(f"aliases make it larger than {_MOST:,} parts: write it out", _place(event.start_mark))
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        names = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value != "<<":
                if key.value in names:
                    raise SyntaxProblem(f"{key.value!r} stands twice in one mapping", _place(key.start_mark))
                names.add(key.value)
        return node


def read(text: str) -> Document:
    """Read a text. Raises SyntaxProblem, also for a key that stands twice in one mapping."""
    try:
        root = yaml.compose(text, Loader=_Loader)
        data = yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        raise SyntaxProblem(error.problem or str(error), _place(error.problem_mark or error.context_mark)) from error
    except yaml.YAMLError as error:
        raise SyntaxProblem(str(error), Position(None, None)) from error
    return Document(data, lambda path, of_key: _offset(root, path, of_key))


def _offset(node: yaml.Node | None, path: Path, of_key: bool) -> int | None:
    start = None
    for part in path:
        entries: Iterable[tuple[Any, yaml.Node, yaml.Node]] = ()
        if isinstance(node, yaml.SequenceNode):
            entries = ((number, each, each) for number, each in enumerate(node.value))
        elif isinstance(node, yaml.MappingNode):
            entries = ((key.value, key, value) for key, value in node.value)
        key, node = next(((key, value) for name, key, value in entries if name == part), (None, None))
        if key is None or node is None:
            return None
        start = (key if of_key else node).start_mark.index
    return start


def _place(mark: Any) -> Position:
    return Position(mark.line + 1, mark.column + 1) if mark else Position(None, None)
