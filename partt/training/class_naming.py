"""Names of classes that a data config gives by number only."""

from collections.abc import Sequence

from partt.data.config.data_config import DataConfig
from partt.data.files.lists import InputFile
from partt.data.reading.jet_source import BadFilePolicy, open_files
from partt.data.variables import name_classes, names_for, require_branches
from partt.errors import ConfigError
from partt.tagger.tagger import Tagger
from partt.training.job import ReadingOptions
from partt.training.recipe import Recipe


def with_class_names(
    recipe: Recipe,
    config: DataConfig,
    files: Sequence[InputFile],
    reading: ReadingOptions,
    teacher: Tagger | None = None,
) -> DataConfig:
    """Return the config with names of its classes, if it has none but can have some.

    The names are those of the recipe or of the teacher, or class_0, class_1, ... up to the largest class
    number in the files. A recipe with regressions and without names takes everything as targets.
    """
    if config.class_names:
        if recipe.class_names is not None:
            raise ConfigError(f"class_names: {recipe.data_config} has names of its own; remove this key")
        return config
    if recipe.class_names is None and (recipe.tasks.regressions or recipe.masked_particles):
        return config
    if not config.labels.targets:
        if recipe.class_names is not None:
            raise ConfigError(f"class_names: {recipe.data_config} has no labels; remove this key")
        return config
    policy = BadFilePolicy(reading.on_bad_file == "skip", reading.max_bad_fraction)
    given = recipe.class_names or (() if teacher is None else teacher.class_names)
    if given:
        return name_classes(config, (), given)
    names = names_for(config.with_particle_labels(()), "train")
    opened, _ = open_files(files, config, lambda file: require_branches(config, names, file), policy)
    return name_classes(config, [file for _, file in opened], skip_bad=policy.skip)


def naming_notices(recipe: Recipe, config: DataConfig) -> list[str]:
    """Return which names were made up."""
    names = config.labels.names or ()
    made_up = tuple(f"class_{number}" for number in range(len(names)))
    if not names or recipe.class_names is not None or names != made_up:
        return []
    text = (
        f"the data config gives the class by number ({config.labels.class_number}), without names: the "
        f"{len(names)} classes are called class_0 to class_{len(names) - 1}; `class_names` in the recipe, or "
        "`labels.names` in the data config, gives them others"
    )
    return [text]
