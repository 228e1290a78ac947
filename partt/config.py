"""YAML files -> immutable, strictly typed records; every error names the file, the line and the key."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from yaml.composer import Composer
from yaml.constructor import SafeConstructor
from yaml.parser import Parser
from yaml.reader import Reader
from yaml.resolver import Resolver
from yaml.scanner import Scanner

from partt.errors import ConfigError
from partt.regular_files import read_bounded

MAX_BYTES = 8_000_000
MAX_NODES = 120_000  # weaver's *.auto.yaml have up to 80 000, in 2 MB
MAX_DEPTH = 50
MAX_DIGITS = 100  # of a whole number
MAX_MESSAGES = 20  # about one file

NOUNS = {  # of what partt ships in these folders
    "data_configs": "data config",
    "input_maps": "input map",
    "public_datasets": "dataset",
    "training": "recipe",
}

KeyPath = tuple[str | int, ...]


class Record(BaseModel):
    """Base class of configs and JSON headers: immutable, no unknown keys, no silent type conversion."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return the record with some fields changed, and everything checked again."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        return type(self)(**{**fields, **changes})


class KeyFault(ValueError):  # noqa: N818 - not an error of its own: it becomes a line of a ConfigError
    """Raised by a validator about another key than the one that it validates."""

    def __init__(self, path: KeyPath, problem: str) -> None:
        super().__init__(problem)
        self.path = path


RecordType = TypeVar("RecordType", bound=Record)


def load_record(path: str | Path, record_type: type[RecordType], overrides: Sequence[str] = ()) -> RecordType:
    """Read a YAML file as a record of the given type; overrides ("optimizer.lr=1e-4") change keys."""
    text = read_bounded(path, MAX_BYTES, error_type=ConfigError)
    return parse_record(text, record_type, source=str(path), overrides=overrides)


def parse_record(
    text: bytes | str, record_type: type[RecordType], source: str, overrides: Sequence[str] = ()
) -> RecordType:
    """Parse YAML text as a record; `source` names the file in error messages."""
    data, lines = parse_yaml(text, source)
    if not isinstance(data, dict):
        raise ConfigError(f"{source}: expected keys and values, found {_describe(data)}")
    places = {path: f"{source}:{line}" for path, line in lines.items()}
    for override in overrides:
        _override(data, places, override)
    try:
        return record_type.model_validate(data)
    except ValidationError as error:
        raise ConfigError(_explain(error, record_type, places)) from error


def shipped_file(folder: str, name_or_path: str) -> Path:
    """Find a config by path, or by the name of one that partt ships in `folder`.

    `folder` is "data_configs", "input_maps", "public_datasets" or "training": at the top of the repository in
    a checkout, inside the package in a wheel.
    """
    path = Path(name_or_path)
    shipped = {file.stem: file for file in _shipped_folder(folder).glob("*.yaml")}
    if path.suffix in {".yaml", ".yml"} or len(path.parts) > 1:
        try:
            is_file = path.is_file()
        except OSError as error:  # a name that is too long, a folder that may not be entered
            raise ConfigError(f"cannot read {path}: {error.strerror}") from error
        if not is_file:
            name = f"; the one that partt ships is called {path.stem}" if path.stem in shipped else ""
            raise ConfigError(f"no such file: {path}{name}")
        return path
    if name_or_path not in shipped:
        raise ConfigError(
            f"partt ships no {NOUNS[folder]} {name_or_path!r}{did_you_mean(name_or_path, list(shipped))}; "
            f"give a path that ends in .yaml, or one of: {', '.join(sorted(shipped))}"
        )
    return shipped[name_or_path]


def shipped_names(folder: str) -> list[str]:
    """Return the names of the configs that partt ships in `folder`."""
    return sorted(file.stem for file in _shipped_folder(folder).glob("*.yaml"))


def did_you_mean(word: str, known: Sequence[str], cutoff: float = 0.6) -> str:
    """Return ' (did you mean ...?)' if a known word is close to `word` (1 is the same word), else ''."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=cutoff)
    return f" (did you mean {close[0]!r}?)" if close else ""


def key_name(path: Sequence[str | int]) -> str:
    """Return a key path as text: inputs.pf_features.vars[3]."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def _shipped_folder(folder: str) -> Path:
    package = Path(str(resources.files("partt")))
    inside = package / "shipped" / folder
    return inside if inside.is_dir() else package.parent / folder


def _override(data: dict[str, Any], places: dict[KeyPath, str], override: str) -> None:
    """Set a key of parsed YAML to the value in "a.b=value", and note the override as its place."""
    name, equals, text = override.partition("=")
    source = f"--set {override}"
    if not (name and equals):
        raise ConfigError(f"{source}: should be KEY=VALUE, like optimizer.lr=1e-4")
    value, lines = parse_yaml(text or "null", source)
    path = tuple(name.split("."))
    inner = data
    for depth, parent in enumerate(path[:-1], start=1):
        inner = inner.setdefault(parent, {})
        places.setdefault(path[:depth], source)
        if not isinstance(inner, dict):
            raise ConfigError(f"{source}: {key_name(path[:depth])} has no keys inside")
    inner[path[-1]] = value
    places |= {(*path, *inside): source for inside in lines}


# --- YAML ---------------------------------------------------------------------------------------------


_TAG = "tag:yaml.org,2002:"


class _PurePythonParser(Reader, Scanner, Parser):
    """The parser of PyYAML where it was built without libyaml: the same, ten times slower."""

    def __init__(self, stream: bytes | str) -> None:
        Reader.__init__(self, stream)
        Scanner.__init__(self)
        Parser.__init__(self)


_Parser: Any = yaml.CSafeLoader.__bases__[0] if yaml.__with_libyaml__ else _PurePythonParser


class _StrictLoader(Composer, _Parser, SafeConstructor, Resolver):  # type: ignore[misc]  # a class all the same
    """YAML's safe subset, with 1e-3 read as a number (PyYAML reads a string).

    Values are counted while they are read. Tags are refused, except !!str: their conversions fail in
    many ways.
    """

    num_nodes = 0
    depth = 0

    def __init__(self, text: bytes | str) -> None:
        _Parser.__init__(self, text)
        Composer.__init__(self)
        SafeConstructor.__init__(self)
        Resolver.__init__(self)

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        event = self.peek_event()
        self.num_nodes += 1
        if self.num_nodes > MAX_NODES:
            problem = f"more than {MAX_NODES} values"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        if self.depth > MAX_DEPTH:
            problem = f"nested deeper than {MAX_DEPTH} levels"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        tag = getattr(event, "tag", None)
        if tag not in {None, "!", f"{_TAG}str"}:
            problem = f"the tag {tag.replace(_TAG, '!!')[:60]} is not supported"
            raise yaml.MarkedYAMLError(problem=problem, problem_mark=event.start_mark)
        self.depth += 1
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node

    def construct_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MAX_DIGITS:
            problem = f"a number with more than {MAX_DIGITS} digits"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
        return int(self.construct_yaml_int(node))


_StrictLoader.add_constructor(f"{_TAG}int", _StrictLoader.construct_int)
_StrictLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in {f"{_TAG}float", f"{_TAG}int"}]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_StrictLoader.add_implicit_resolver(
    f"{_TAG}int",  # as in YAML 1.1, without numbers of base 60 (1:30), which nobody means
    re.compile(r"[-+]?0b[0-1_]+$|[-+]?0[0-7_]+$|[-+]?(?:0|[1-9][0-9_]*)$|[-+]?0x[0-9a-fA-F_]+$"),
    list("-+0123456789"),
)
_StrictLoader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(?:[0-9][0-9_]*)(?:\.[0-9_]*)?(?:[eE][-+]?[0-9]+)$"  # 1e-3, 1.5E6
        r"|[-+]?(?:[0-9][0-9_]*)\.[0-9_]*$|[-+]?\.[0-9][0-9_]*(?:[eE][-+]?[0-9]+)?$"  # 1.5, 1., .5, .5e3
        r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


def parse_yaml(text: bytes | str, source: str) -> tuple[Any, dict[KeyPath, int]]:
    """Parse YAML text safely; also return the line of every key path.

    Refused: duplicate keys with different values, more than 8 MB, more than 120 000 values once aliases are
    expanded, nesting deeper than 50.
    """
    if len(text) > MAX_BYTES:
        raise ConfigError(f"{source}: larger than {MAX_BYTES} bytes: not a config")
    lines: dict[KeyPath, int] = {}
    loader: _StrictLoader | None = None
    try:
        loader = _StrictLoader(text)
        node = loader.get_single_node()
        if node is None:
            raise ConfigError(f"{source}: the file is empty")
        for num_nodes, (path, line) in enumerate(_walk(node, (), source)):
            lines[path] = line
            if num_nodes > MAX_NODES:
                raise ConfigError(f"{source}: more than {MAX_NODES} values (aliases expanded)")
        return loader.construct_document(node), lines
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{source}:{mark.line + 1}" if mark else source
        raise ConfigError(f"{where}: not valid YAML: {error.problem or error.context}") from error
    except (yaml.YAMLError, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"{source}: not valid YAML: {' '.join(str(error).split())}") from error
    finally:
        if loader is not None:
            loader.dispose()


def _walk(node: yaml.Node, path: KeyPath, source: str) -> Iterator[tuple[KeyPath, int]]:
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"{source}:{node.start_mark.line + 1}: nested deeper than {MAX_DEPTH} levels")
    yield path, node.start_mark.line + 1
    if isinstance(node, yaml.SequenceNode):
        for index, child in enumerate(node.value):
            yield from _walk(child, (*path, index), source)
    elif isinstance(node, yaml.MappingNode):
        seen: dict[str, yaml.Node] = {}
        for key_node, child in node.value:
            key = key_node.value
            line = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                raise ConfigError(f"{source}:{line}: a key must be a single word or number")
            if not _same_scalar(seen.setdefault(key, child), child):
                raise ConfigError(f"{source}:{line}: {key_name((*path, key))}: duplicate key")
            yield from _walk(child, (*path, key), source)
            yield (*path, key), line


def _same_scalar(first: yaml.Node, second: yaml.Node) -> bool:
    """Whether two nodes are one, or the same text: a key given twice with one value is harmless."""
    both = isinstance(first, yaml.ScalarNode) and isinstance(second, yaml.ScalarNode)
    return first is second or (both and (first.tag, first.value) == (second.tag, second.value))


# --- error messages ---------------------------------------------------------------------------------------


def _explain(error: ValidationError, record_type: type[Record], places: Mapping[KeyPath, str]) -> str:
    messages = []
    for detail in error.errors()[:MAX_MESSAGES]:
        # Steps that pydantic adds for the members of a union are not keys of the file.
        path: KeyPath = ()
        for part in detail["loc"]:
            if (*path, part) in places or isinstance(part, int):
                path = (*path, part)
        kind, value = detail["type"], detail["input"]
        fault = detail.get("ctx", {}).get("error")
        if isinstance(fault, KeyFault):
            path = (*path, *fault.path)
        if kind == "missing":
            path = (*path, str(detail["loc"][-1]))
            text = "this key is needed"
        elif kind == "extra_forbidden":
            known = _known_keys(record_type, detail["loc"][:-1])
            text = f"unknown key{did_you_mean(str(path[-1]), known)}"
            text += f"; known here: {', '.join(known)}" if known else ""
        else:
            text = detail["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
            text = text.replace("a valid tuple", "a list")
            if kind != "value_error":
                text += f", found {_describe(value)}"
            if isinstance(value, bool):
                text += " (YAML reads yes, no, on, off as true or false: put the word in quotes)"
        place = next(places[path[:end]] for end in range(len(path), -1, -1) if path[:end] in places)
        message = f"{place}: {key_name(path)}: {text}" if path else f"{place}: {text}"
        if message not in messages:
            messages.append(message)
    if error.error_count() > MAX_MESSAGES:
        messages.append(f"and {error.error_count() - MAX_MESSAGES} more")
    return "\n".join(messages)


def _known_keys(record_type: type[Record], path: Sequence[str | int]) -> list[str]:
    """Return the keys that the record at `path` below `record_type` accepts."""
    current: Any = record_type
    for part in path:
        if isinstance(current, type) and issubclass(current, Record) and part in current.model_fields:
            current = current.model_fields[str(part)].annotation
        current = _inner_record(current, part)
    is_record = isinstance(current, type) and issubclass(current, Record)
    return [field.alias or name for name, field in current.model_fields.items()] if is_record else []


def _inner_record(annotation: Any, part: str | int) -> Any:
    """Return the record type inside Optional[...], dict[str, ...] or list[...]."""
    if isinstance(annotation, type):
        return annotation
    records = [inner for inner in getattr(annotation, "__args__", ()) if inner is not None]
    records = [_inner_record(inner, part) for inner in records]
    return next((r for r in records if isinstance(r, type) and issubclass(r, Record)), annotation)


def _describe(value: Any) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
