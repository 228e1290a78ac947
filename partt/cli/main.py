"""The `partt` command: parses its words and runs a verb."""

import argparse
import importlib
import shlex
import sys
from collections.abc import Sequence

import partt
from partt.cli.exit_codes import exit_code_of
from partt.cli.streams import lasting_streams
from partt.errors import ConfigError, is_utf8
from partt.jobs.stop_signals import raise_on_signal

# verb -> summary; the code is partt/cli/<verb>.py, with add_arguments(parser) and run(arguments)
VERBS = {
    "simulate": "make JetClass-style jets with Pythia 8 and a fast detector simulation",
    "download": "fetch a public dataset: JetClass, Top Landscape, Quark-Gluon",
    "convert": "convert public datasets (HDF5, NPZ) to ROOT files, keeping every event",
    "check": "check, before a long job, that files and data config fit together",
    "train": "train a network on jets, following a recipe",
    "predict": "score new jets, labelled or not, one row for each entry",
    "evaluate": "make the results table, figures and report from scores",
    "explain": "find out which inputs of a tagger matter and where its network looks",
    "show": "draw jets of a file, with their scores and the network's attention",
    "export": "export a tagger as an ONNX file that takes raw branches, and verify it",
    "import-weaver": "convert weights trained with weaver-core (.pt) to a tagger file",
    "export-weaver": "convert a tagger file to weights for weaver-core (.pt)",
    "taggers": "list the taggers that come with partt",
    "demo": "simulate, train, predict and evaluate in a few minutes",
}

EXAMPLES = """\
examples:
  partt demo
  partt predict --tagger jetclass-200k 'jets/*.root'
  partt check jetclass_full TTBar:'data/TTBar_*.root' QCD:'data/ZJetsToNuNu_*.root'

`partt VERB --help` lists the options of a verb.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    with lasting_streams():
        foreign = next((word for word in words if not is_utf8(word)), None)
        if foreign is not None:
            print(f"partt: error: {foreign!r} is not valid UTF-8; rename the file", file=sys.stderr)
            return ConfigError.exit_code
        options = parse(words)
        with raise_on_signal():
            return exit_code_of(lambda: options.run(options), debug=options.debug)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments after `partt`; `options.run(options)` then runs the verb."""
    parser = _build_parser(verb=next((word for word in words if word in VERBS), None))
    if not words:
        parser.exit(2, parser.format_help())
    return parser.parse_args(words, argparse.Namespace(command=shlex.join(["partt", *words])))


def _build_parser(verb: str | None) -> argparse.ArgumentParser:
    """Build the parser; only the module of the given verb is imported, so that help stays fast."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="partt", description=partt.__doc__, epilog=EXAMPLES, formatter_class=raw
    )
    parser.add_argument("--version", action="version", version=f"partt {partt.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        subparser = verbs.add_parser(name, help=summary, description=summary, formatter_class=raw)
        subparser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if name == verb:
            module = importlib.import_module(f"partt.cli.{name.replace('-', '_')}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run)
    return parser
