"""The `partt` command: parses its words and runs a verb."""

import argparse
import importlib
import re
import shlex
import sys
import textwrap
from collections.abc import Sequence
from functools import partial

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

FROM_WEAVER = "docs/how-to/weaver.md says what partt has for each flag of weaver-core"
OF_RECIPE = "keys of the recipe are set like --set epochs=20"


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
    if not words[0].startswith("-") and words[0] not in VERBS:
        _refuse_verb(parser, words[0])
    command = shlex.join(["partt", *words])
    options, unknown = parser.parse_known_args(words, argparse.Namespace(command=command))
    if unknown:
        options.refuse(unknown)
    return options


def _refuse_verb(parser: argparse.ArgumentParser, word: str) -> None:
    from partt.config import did_you_mean

    parser.error(f"no verb {word!r}{did_you_mean(word, list(VERBS))}; give one of {', '.join(VERBS)}")


def _refuse_words(parser: argparse.ArgumentParser, words: Sequence[str]) -> None:
    """End with an error about words that a verb does not know."""
    from partt.config import did_you_mean

    flags = [word.partition("=")[0] for word in words if word.startswith("-")]
    if not flags:
        parser.error(f"unexpected argument {' '.join(words)}")
    usage = parser.format_usage()
    known = re.findall(r"--[\w-]+", usage)
    meant = [did_you_mean(flag, known, cutoff=0.8) for flag in flags]
    named = ", ".join(map("".join, zip(flags, meant, strict=True)))
    if all(meant):
        hints = []
    elif "RECIPE" in usage:
        hints = [OF_RECIPE, FROM_WEAVER]
    else:
        hints = [FROM_WEAVER] if "TAGGER" in usage else [f"see `{parser.prog} --help`"]
    parser.error("; ".join([f"no option {named}", *hints]))


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps paragraphs; those with indented lines, such as examples, stay as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrap = partial(textwrap.fill, width=width, break_long_words=False, break_on_hyphens=False)
        wrapped = (each if "\n " in each else wrap(each) for each in text.strip().split("\n\n"))
        return textwrap.indent("\n\n".join(wrapped), indent) + "\n"


def _build_parser(verb: str | None) -> argparse.ArgumentParser:
    """Build the parser; only the module of the given verb is imported, so that help stays fast."""
    parser = argparse.ArgumentParser(
        prog="partt", description=partt.__doc__, epilog=EXAMPLES, formatter_class=_HelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"partt {partt.__version__}")
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for name, summary in VERBS.items():
        text = f"{summary[0].upper()}{summary[1:]}."
        subparser = verbs.add_parser(name, help=summary, description=text, formatter_class=_HelpFormatter)
        subparser.add_argument("--debug", action="store_true", help="show the traceback of an error")
        if name == verb:
            module = importlib.import_module(f"partt.cli.{name.replace('-', '_')}")
            module.add_arguments(subparser)
            subparser.set_defaults(run=module.run, refuse=partial(_refuse_words, subparser))
    return parser
