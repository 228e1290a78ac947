"""Steps and epochs of a run."""

from dataclasses import dataclass

from partt.data.reading.jet_index import JetIndex
from partt.data.reading.read_plan import jets_per_pass
from partt.errors import ConfigError
from partt.training.recipe import Recipe

MANY_PASSES = 10  # over the training jets, in one epoch


@dataclass(frozen=True)
class Steps:
    """How a run is divided into steps and epochs; the same in all processes."""

    num_steps: int
    steps_per_epoch: int
    batch_size: int  # of one forward pass in one process
    accumulate: int  # forward passes per step

    @property
    def num_epochs(self) -> int:
        """Number of epochs, of which the last may be shorter."""
        return -(-self.num_steps // self.steps_per_epoch)

    def epoch_end(self, epoch: int) -> int:
        """Return the steps done at the end of an epoch, counted from 0."""
        return min((epoch + 1) * self.steps_per_epoch, self.num_steps)


def count_steps(recipe: Recipe, index: JetIndex, world_size: int) -> Steps:
    """Return the steps of a recipe with the indexed training jets."""
    parts = world_size * recipe.accumulate
    if recipe.batch_size % parts:
        raise ConfigError(
            f"batch_size {recipe.batch_size} cannot be shared by {world_size} processes x accumulate "
            f"{recipe.accumulate}: make it a multiple of {parts}"
        )
    jets = recipe.jets_per_epoch or jets_per_pass(index.chunks)[0]
    steps_per_epoch = max(1, jets // recipe.batch_size)
    num_steps = recipe.steps or (recipe.epochs or 0) * steps_per_epoch
    return Steps(num_steps, steps_per_epoch, recipe.batch_size // parts, recipe.accumulate)


def pass_notices(recipe: Recipe, index: JetIndex) -> list[str]:
    """Return that an epoch is many passes over the training jets, as with a recipe for a larger sample."""
    num_jets, wanted = jets_per_pass(index.chunks)[0], recipe.jets_per_epoch or 0
    if not num_jets or wanted < MANY_PASSES * num_jets:  # whoever reads the jets says that there are none
        return []
    passes = f"{wanted:,} jets are {wanted // num_jets:,} passes over the {num_jets:,} training jets"
    return [f"jets_per_epoch: {passes}; with --set jets_per_epoch=null an epoch is one pass"]
