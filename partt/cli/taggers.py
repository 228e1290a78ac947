"""`partt taggers`: list the taggers that come with partt."""

import argparse
import textwrap

from partt.cli.screen import make_console

EPILOG = """\
examples:
  partt taggers
  partt predict --tagger jetclass-200k 'jets/*.root'
"""
WIDTH = 80  # of the text


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: there are none."""
    parser.epilog = EPILOG


def run(_: argparse.Namespace) -> int:
    """List the taggers."""
    from partt.tagger.shipped.descriptions import describe_shipped

    console = make_console()
    for tagger in describe_shipped():
        facts = tagger.facts
        accuracy = f"{facts.accuracy.value:.4f} ± {facts.accuracy.error:.4f}"
        lines = {
            "network": f"{tagger.network_name}, {tagger.num_parameters:,} parameters",
            "classes": ", ".join(tagger.class_names),
            "features": ", ".join(tagger.feature_names),
            "trained on": f"{facts.training_jets:,} simulated jets",
            "accuracy": f"{accuracy} on {facts.test_jets:,} other simulated jets",
            "card": facts.page,
        }
        console.print(tagger.name, style="bold", highlight=False)
        for title, text in lines.items():
            indented = textwrap.fill(text, WIDTH, initial_indent=f"  {title:<12}", subsequent_indent=" " * 14)
            console.print(indented, markup=False, highlight=False, soft_wrap=True)
    return 0
