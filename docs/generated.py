"""What pages show of the code itself (help texts, keys of configs, errors) and of what benchmarks measured.

A page has the line `<!-- generated: NAME -->`; when Sphinx reads it, Markdown made here replaces the line,
and what `numbers_in_pages.py` has written below it.
"""

import contextlib
import inspect
import io
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.pycode import ModuleAnalyzer

import numbers_in_pages
from numbers_in_pages import PLACE
from partt import errors
from partt.cli.main import VERBS, main
from partt.config import Record
from partt.data.config import input_map
from partt.data.config import sections as data_config_schema
from partt.data.config.data_config import DataConfig
from partt.data.config.labels import Labels, ParticleLabels, Targets
from partt.data.formulas.functions import CONSTANTS, NUMPY_FUNCTIONS
from partt.model.registry import network_kind, network_names
from partt.training import recipe

HELP_WIDTH = "100"


def fill_in(app: Sphinx, page: str, source: list[str]) -> None:
    """Put the generated text into a page (Sphinx's event source-read)."""
    del app, page
    source[0] = PLACE.sub(lambda match: TEXTS[match["name"]](), source[0])


def pages_to_fill(app: Sphinx, env: BuildEnvironment, *changes: set[str]) -> list[str]:
    """Return the pages with generated text: every build makes them anew (Sphinx's event env-get-outdated)."""
    del app, changes
    texts = {page: Path(env.doc2path(page)).read_text(encoding="utf-8") for page in env.found_docs}
    return [page for page, text in texts.items() if PLACE.search(text)]


def command_line() -> str:
    """Return the help of partt and of each of its verbs."""
    verbs = (f"## partt {verb}\n\n```text\n{help_text(verb)}```\n" for verb in VERBS)
    return "\n".join([f"```text\n{help_text()}```\n", *verbs])


def help_text(*verb: str) -> str:
    """Return what `partt VERB --help` prints."""
    os.environ["COLUMNS"] = HELP_WIDTH  # argparse reads it
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*verb, "--help"])
    return printed.getvalue()


def recipe_keys() -> str:
    """Return the keys of recipes, section by section."""
    sections = {
        "model": recipe.ModelChoice,
        "optimizer": recipe.OptimizerChoice,
        "schedule": recipe.ScheduleChoice,
        "tasks": recipe.Tasks,
        "tasks.classification": recipe.ClassificationTask,
        "tasks.regressions.NAME": recipe.RegressionTask,
        "tasks.particles.NAME": recipe.ParticleTask,
        "distillation": recipe.DistillationChoice,
        "masked_particles": recipe.MaskedParticlesChoice,
        "masked_particles.decoder": recipe.DecoderChoice,
        "ema": recipe.EmaChoice,
        "fine_tuning": recipe.FineTuning,
    }
    return "\n".join([key_table(recipe.Recipe), *_sections(sections)])


def network_keys() -> str:
    """Return the keys of `model.settings`, network by network."""
    kinds = {name: network_kind(name) for name in network_names()}
    by_type: dict[type[Record], list[str]] = {}
    for name, kind in kinds.items():
        by_type.setdefault(kind.config_type, []).append(name)
    parts = []
    for config_type, names in by_type.items():
        parts += [f"### {', '.join(names)}\n", f"{inspect.getdoc(config_type)}\n", key_table(config_type)]
        changed = {name: kinds[name].preset for name in names if kinds[name].preset}
        if changed:
            parts += [
                "What the names change:\n",
                *(f"- `{name}`: {_settings(preset)}" for name, preset in changed.items()),
                "",
            ]
    return "\n".join(parts)


def data_config_keys() -> str:
    """Return the keys of data configs, section by section."""
    schema = data_config_schema
    sections = {
        "preprocess": schema.Preprocess,
        "preprocess.params": schema.Parameters,
        "inputs.GROUP": schema.GroupSection,
        "inputs.GROUP.vars": schema.Variable,
        "labels": Labels,
        "labels.particles.NAME": ParticleLabels,
        "targets": Targets,
        "weights": schema.Weights,
        "bucketing": schema.Bucketing,
    }
    return "\n".join([key_table(DataConfig), *_sections(sections)])


def input_map_keys() -> str:
    """Return the keys of input maps, section by section."""
    sections = {"particles.COLLECTION": input_map.Link, "lists.PREFIX": input_map.ListRule}
    return "\n".join([key_table(input_map.InputMap), *_sections(sections)])


def formula_functions() -> str:
    """Return the functions and constants that formulas may use, by module."""
    names = sorted([*NUMPY_FUNCTIONS.functions, *CONSTANTS])
    modules = {"np": "`np.`", "ak": "`ak.`", "math": "`math.`", "": "without a module"}
    rows = []
    for module, title in modules.items():
        start = f"{module}." if module else ""
        found = [
            name.removeprefix(start)
            for name in names
            if (name.startswith(start) if module else "." not in name)
        ]
        rows.append(f"| {title} | {', '.join(f'`{name}`' for name in found)} |")
    return "| | |\n|---|---|\n" + "\n".join(rows) + "\n"


def exit_codes() -> str:
    """Return the errors of partt.errors with their exit codes."""
    kinds = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if kind is not errors.ParttError]
    rows = [
        f"| {kind.exit_code} | `{kind.__name__}` | {inspect.getdoc(kind)} |"
        for kind in sorted(kinds, key=lambda kind: kind.exit_code)
    ]
    return "| exit code | error | |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def notebook() -> str:
    """Return the cells of the notebook: texts, code as blocks, and what it shows."""
    path = Path(__file__).parent / "tutorial/notebook.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"][1:]  # without the title
    parts = []
    for cell in cells:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
        parts += [_shown(output["data"]) for output in cell.get("outputs", []) if "data" in output]
    return "\n\n".join(parts)


def _shown(data: dict[str, list[str]]) -> str:
    """Return an output of a cell: HTML, or else text."""
    if "text/html" in data:
        html = "".join(data["text/html"])
        return f"```{{raw}} html\n<div class='notebook-output'>{html}</div>\n```"
    return f"```text\n{''.join(data['text/plain'])}\n```"


TEXTS: dict[str, Callable[[], str]] = {
    "notebook": notebook,
    "command line": command_line,
    "recipe keys": recipe_keys,
    "network keys": network_keys,
    "data config keys": data_config_keys,
    "input map keys": input_map_keys,
    "formula functions": formula_functions,
    "exit codes": exit_codes,
    **numbers_in_pages.TEXTS,
}


# --- a record as a table ------------------------------------------------------------------------------------


def key_table(record: type[Record]) -> str:
    """Return a table of a record's keys: type, default, meaning."""
    schema = record.model_json_schema()
    docs = ModuleAnalyzer.for_module(record.__module__).find_attr_docs()
    rows = []
    for name, field in schema["properties"].items():
        if (record, name) == (data_config_schema.Variable, "is_bare"):
            continue  # how an entry was written, not what is written
        meaning = " ".join(docs.get((record.__name__, name), ())) or _meaning_of_keys(field, schema)
        default = "needed" if name in schema.get("required", ()) else _default(record, name)
        rows.append(f"| `{name}` | {_type(field, schema)} | {default} | {meaning.strip()} |")
    return "| key | value | default | |\n|---|---|---|---|\n" + "\n".join(rows) + "\n"


def _sections(sections: dict[str, type[Record]]) -> Iterator[str]:
    for name, record in sections.items():
        yield f"### {name}\n\n{inspect.getdoc(record)}\n\n{key_table(record)}"


def _default(record: type[Record], name: str) -> str:
    value = record.model_fields[name].get_default(call_default_factory=True)
    if isinstance(value, Record) or value == "":
        return ""  # the defaults of its own keys, or no text
    return f"`{_yaml(value)}`"


def _meaning_of_keys(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the description of the section that a key holds."""
    references = [inner["$ref"] for inner in [field, *field.get("anyOf", ())] if "$ref" in inner]
    text = " ".join(schema["$defs"][name.rpartition("/")[2]]["description"] for name in references)
    return text.rstrip(".")


def _settings(settings: Any) -> str:
    return ", ".join(f"`{name}: {_yaml(value)}`" for name, value in settings.items())


def _yaml(value: Any) -> str:
    """Return a value as it is written in YAML."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_yaml, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return f"{value:g}" if isinstance(value, float) else str(value)


def _type(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return in a few words what a JSON schema allows."""
    if "$ref" in field:
        target = schema["$defs"][field["$ref"].rpartition("/")[2]]
        return "keys" if "properties" in target else _type(target, schema)
    if "enum" in field or "const" in field:
        return ", ".join(f"`{value}`" for value in field.get("enum", [field.get("const")]))
    for union in ("anyOf", "oneOf"):
        if union in field:
            kinds = [_type(inner, schema) for inner in field[union]]
            return " or ".join(dict.fromkeys(kinds))
    kind = field.get("type")
    if kind == "array":
        inner = field.get("items") or field["prefixItems"][0]
        return f"list ({_type(inner, schema)})"
    if kind == "object":
        return "keys"
    names = {
        "integer": "whole number",
        "number": "number",
        "string": "text",
        "boolean": "true or false",
        "null": "null",
    }
    return names.get(kind or "", "any") + _limits(field)


def _limits(field: dict[str, Any]) -> str:
    signs = {"exclusiveMinimum": ">", "minimum": "≥", "exclusiveMaximum": "<", "maximum": "≤"}
    limits = [f"{sign} {field[key]:g}" for key, sign in signs.items() if key in field]
    return f" {' and '.join(limits)}" if limits else ""
