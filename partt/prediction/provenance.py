"""Origins of outputs; decides what a rerun keeps, and what it may replace."""

import os
from collections.abc import Iterator
from pathlib import Path

from partt.atomic_files import refuse_foreign
from partt.data.files.access import is_remote, local_path
from partt.errors import ConfigError, DataError, without_secrets
from partt.prediction.opened_files import OpenedFile
from partt.prediction.options import Options
from partt.scores.origin import Origin, Provenance, read_provenance, tagger_text
from partt.tagger.tagger import Tagger


def origin_of(file: OpenedFile, tagger: Tagger, options: Options) -> Origin:
    """Return the origin that the output of a file has if it is made now."""
    url = file.info.url
    return Origin(
        input=without_secrets(url) if is_remote(url) else os.path.realpath(local_path(url)),
        input_identity=file.info.identity,
        tagger_sha256=tagger.sha256,
        class_names=list(tagger.class_names),
        options=options.describe(),
        carried=[*file.observers, *file.keep],
        tree=file.tree,
        jets=file.jets,
    )


def finished_output(
    path: Path, origin: Origin, network: str, *, overwrite: bool = False
) -> Provenance | None:
    """Return the provenance of an output that can be kept; None if it must be made.

    Without `overwrite`, a file of any other origin is an error: it is never replaced.
    """
    found = _provenance_of(path)
    if found is not None and found.origin == origin:
        return found
    refuse_foreign(path, "partt predict", lambda _: found is not None, overwrite=overwrite)
    if found is not None and not overwrite:
        raise ConfigError(
            f"{path} already has other scores: {'; '.join(_differences(found, origin, network))}; choose "
            "another --out, or replace it with --overwrite"
        )
    return None


def _provenance_of(path: Path) -> Provenance | None:
    if not path.is_file():
        return None
    try:
        return read_provenance(str(path))
    except DataError:
        return None


def _differences(found: Provenance, origin: Origin, network: str) -> Iterator[str]:
    """Say how the origin of existing scores differs from that of new ones."""
    before = found.origin
    if before.input != origin.input:
        yield f"of {before.input}, not of {origin.input}"
    elif before.input_identity != origin.input_identity:
        yield f"of {before.input} before that file was changed"
    if before.tagger_sha256 != origin.tagger_sha256:
        yield f"of the tagger {found.tagger}, not of {tagger_text(origin.tagger_sha256, network)}"
    elif before.class_names != origin.class_names:
        yield f"of the classes {', '.join(before.class_names)}, not of {', '.join(origin.class_names)}"
    for name in dict.fromkeys([*before.options, *origin.options]):
        if before.options.get(name) != origin.options.get(name):
            yield f"with the option {name} = {before.options.get(name)}, not {origin.options.get(name)}"
    if before.carried != origin.carried and before.options.get("keep") == origin.options.get("keep"):
        columns = [", ".join(names) or "none" for names in (before.carried, origin.carried)]
        yield f"with the input's columns {columns[0]}, not {columns[1]}"
    if before.tree != origin.tree:
        yield f"of the tree {before.tree or '(not named)'}, not of {origin.tree or '(not named)'}"
    if before.format_version != origin.format_version:
        yield f"in format version {before.format_version}, not {origin.format_version}"
