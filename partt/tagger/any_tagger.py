"""What jets are scored with: a tagger file in torch, or an exported one in onnxruntime."""

from pathlib import Path
from typing import Literal, TypeAlias

from partt.errors import ConfigError
from partt.tagger.inference import embedding_width
from partt.tagger.onnx_file import NO_EMBEDDINGS, SUFFIX, OnnxTagger, load_onnx_tagger
from partt.tagger.tagger_file import Tagger, load_tagger, tagger_bytes

AnyTagger: TypeAlias = Tagger | OnnxTagger
Engine: TypeAlias = Literal["torch", "onnx"]


def load_any_tagger(name_or_path: str | Path, engine: Engine | None = None) -> AnyTagger:
    """Load a tagger; the engine follows from the file's name, and must fit if it is given."""
    exported = Path(name_or_path).suffix == SUFFIX
    if engine == "onnx" and not exported:
        raise ConfigError(
            f"--engine onnx runs files that `partt export` makes ({SUFFIX}), and {name_or_path} is none"
        )
    if engine == "torch" and exported:
        raise ConfigError(f"{name_or_path} is an exported tagger: --engine onnx runs it")
    return load_onnx_tagger(name_or_path) if exported else load_tagger(name_or_path)


def to_bytes(tagger: AnyTagger) -> bytes:
    """Return the contents of a tagger's file."""
    return tagger.contents if isinstance(tagger, OnnxTagger) else tagger_bytes(tagger)[0]


def require_embeddings(tagger: AnyTagger) -> None:
    """Raise an error if a tagger has no embeddings of jets."""
    if isinstance(tagger, OnnxTagger):
        raise ConfigError(NO_EMBEDDINGS)
    embedding_width(tagger.model)
