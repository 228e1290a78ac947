"""Network files: the user's own network, in the form of weaver-core or of partt.

weaver-core's form has get_model(data_config, **options) and perhaps get_loss(data_config, **options); partt's
has KIND, a NetworkKind. Reading a file runs nothing; only `run_network_file` runs its code.
"""

import hashlib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any

from torch import Tensor

from partt.errors import ConfigError
from partt.model.foreign_code import blamed_on, importing_beside
from partt.model.registry import NetworkKind
from partt.model.weaver_network import WeaverInputs, WeaverModule, WeaverNetwork, WeaverSettings
from partt.regular_files import read_bounded

MAX_BYTES = 10_000_000
# what weaver-core looks for in a file, and partt cannot do
NOT_SUPPORTED = {
    "get_train_fn": "partt has its own training loop",
    "get_evaluate_fn": "partt has its own validation",
    "init_opt": "the optimizer is a part of the recipe",
}

Loss = Callable[[Tensor, Tensor], Tensor]  # outputs, labels -> loss of the batch


@dataclass(frozen=True)
class NetworkFile:
    """A network file that was read, once: what is run is what was hashed."""

    path: Path
    text: str

    @cached_property
    def sha256(self) -> str:
        """The sha256 of the file."""
        return hashlib.sha256(self.text.encode()).hexdigest()


def read_network_file(path: str | Path) -> NetworkFile:
    """Read a network file; nothing of it is run."""
    contents = read_bounded(path, MAX_BYTES, error_type=ConfigError)
    try:
        return NetworkFile(Path(path).absolute(), contents.decode())
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not Python code in UTF-8: {error}") from error


@dataclass(frozen=True, eq=False)
class NetworkCode:
    """A network file that was run."""

    file: NetworkFile
    module: ModuleType

    def kind(self, inputs: WeaverInputs) -> NetworkKind:
        """Return the kind of its network; `inputs` is what weaver-core's form is told about the jets."""
        kind = getattr(self.module, "KIND", None)
        if isinstance(kind, NetworkKind):
            return kind
        backbone = partial(WeaverModule, path=self.file.path, get_model=self.module.get_model, inputs=inputs)
        return NetworkKind(
            WeaverSettings, lambda config, _: backbone(config), network=WeaverNetwork, can_be_sized=False
        )

    def loss(self, options: Mapping[str, Any], inputs: WeaverInputs) -> Loss | None:
        """Return what get_loss returns, if the file has it."""
        get_loss = getattr(self.module, "get_loss", None)
        if get_loss is None:
            return None
        settings = WeaverSettings.model_validate(dict(options))
        with blamed_on(self.file.path), importing_beside(self.file.path):
            loss = get_loss(inputs.data_config, **settings.options)
        if not callable(loss):
            raise ConfigError(
                f"{self.file.path}: get_loss should return a function of outputs and labels, found "
                f"{type(loss).__name__}"
            )
        checked: Loss = loss
        return checked


def run_network_file(file: NetworkFile) -> NetworkCode:
    """Run a network file as a module; it may import others of its folder."""
    module = ModuleType(f"partt_network_{file.sha256[:16]}")
    module.__file__ = str(file.path)
    sys.modules[module.__name__] = module  # dataclasses and pickle look their module up
    with blamed_on(file.path), importing_beside(file.path):
        exec(compile(file.text, str(file.path), "exec", dont_inherit=True), module.__dict__)  # noqa: S102 - what the user asked for
    for name, reason in NOT_SUPPORTED.items():
        if hasattr(module, name):
            raise ConfigError(
                f"{file.path}: {name} is not supported: {reason}; remove it, or use weaver-core"
            )
    has_kind = isinstance(getattr(module, "KIND", None), NetworkKind)
    if has_kind == callable(getattr(module, "get_model", None)):
        found = "both" if has_kind else "neither"
        raise ConfigError(
            f"{file.path}: should define get_model(data_config, **options), as for weaver-core, or KIND, a "
            f"partt.model.registry.NetworkKind; it has {found}"
        )
    return NetworkCode(file, module)
