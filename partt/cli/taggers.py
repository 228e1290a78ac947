"""`partt taggers`: what partt ships, ready to be used by name."""

import argparse
import textwrap

from partt.cli.screen import make_console

EPILOG = """\
examples:
  partt taggers
  partt predict --tagger jetclass-small 'jets/*.root'
"""
WIDTH = 80  # of the lists of classes and features


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options: there are none."""
    parser.epilog = EPILOG


def run(_: argparse.Namespace) -> int:
    """List the taggers; each is loaded, and so checked."""
    from partt.tagger.loading import load_torch_tagger
    from partt.tagger.shipped import shipped_taggers, tagger_facts

    console = make_console()
    for name in shipped_taggers():
        tagger, facts = load_torch_tagger(name), tagger_facts(name)
        features = [variable.name for variable in tagger.data_config.particles.variables]
        accuracy = f"{facts.accuracy.value:.4f} ± {facts.accuracy.error:.4f}"
        lines = {
            "network": f"{tagger.network_name}, {tagger.network.num_parameters:,} parameters",
            "classes": ", ".join(tagger.class_names),
            "features": ", ".join(features),
            "trained on": f"{facts.training_jets:,} simulated jets",
            "accuracy": f"{accuracy} on {facts.test_jets:,} other simulated jets",
            "card": facts.page,
        }
        console.print(name, style="bold", highlight=False)
        for title, text in lines.items():
            indented = textwrap.fill(text, WIDTH, initial_indent=f"  {title:<12}", subsequent_indent=" " * 14)
            console.print(indented, markup=False, highlight=False, soft_wrap=True)
    return 0
