"""Weights of a Hugging Face directory, read from safetensors files and from nothing else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from ramet.runtime.errors import InvalidArgument, UnsupportedFeature
from ramet.runtime.model.spec import ModelSpec

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


def load_weights(
    directory: str | Path, spec: ModelSpec, dtype: torch.dtype | None, device: str | torch.device
) -> dict[str, torch.Tensor]:
    """Every tensor of `spec.weight_shapes()`, by its Hugging Face name, in `dtype` on `device`.

    None leaves each in the dtype of its file. Files are memory-mapped; on a CPU a tensor that
    already has `dtype` stays in the mapping. Raises InvalidArgument naming a file or tensor that is
    missing, unexpected or misshapen, and UnsupportedFeature where there are only pickled weights,
    which are never read.
    """
    wanted = spec.weight_shapes()
    weights: dict[str, torch.Tensor] = {}
    for path in _files(Path(directory)):
        try:
            with safe_open(path, framework="pt", device="cpu") as file:
                for name in file.keys():  # noqa: SIM118  (not a dict)
                    if name in weights:
                        raise InvalidArgument(f"{path}: tensor {name!r} is in two files")
                    if name in wanted:
                        weights[name] = file.get_tensor(name).to(device=device, dtype=dtype)
                    elif not _ignorable(name, spec):
                        raise InvalidArgument(
                            f"{path}: unexpected tensor {name!r} for a {spec.family} model of "
                            f"{spec.num_layers} layers"
                        )
        except SafetensorError as error:
            raise InvalidArgument(f"{path}: not a readable safetensors file: {error}") from error
    check_weights(weights, spec)
    return weights


def check_weights(weights: Mapping[str, torch.Tensor], spec: ModelSpec) -> None:
    """Raise InvalidArgument unless `weights` has every tensor of the spec in its shape."""
    wanted = spec.weight_shapes()
    missing = [name for name in wanted if name not in weights]
    if missing:
        raise InvalidArgument(f"weights: tensor {_some(missing)} is missing")
    for name, shape in wanted.items():
        if tuple(weights[name].shape) != shape:
            raise InvalidArgument(
                f"weights: tensor {name!r} has shape {tuple(weights[name].shape)}, "
                f"the config asks for {shape}"
            )


def _files(directory: Path) -> list[Path]:
    """The safetensors files of a checkpoint: one, or those that its index names."""
    if (directory / _INDEX).is_file():
        path = directory / _INDEX
        try:
            names = sorted(set(json.loads(path.read_text(encoding="utf-8"))["weight_map"].values()))
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise InvalidArgument(f"{path}: not a safetensors index: {error!r}") from error
        for name in names:
            if not isinstance(name, str) or Path(name).name != name:
                raise InvalidArgument(f"{path}: {name!r} is not a file name in its own directory")
            if not (directory / name).is_file():
                raise InvalidArgument(f"{path}: the file {name!r} that it names is missing")
        return [directory / name for name in names]
    if (directory / _SINGLE).is_file():
        return [directory / _SINGLE]
    for pattern in ("*.bin", "*.pt", "*.pth"):
        if pickles := sorted(directory.glob(pattern)):
            raise UnsupportedFeature(
                f"{pickles[0]}: pickled weights can run code and are never loaded; "
                "convert the model to safetensors"
            )
    raise InvalidArgument(f"{directory}: has neither {_SINGLE} nor {_INDEX}")


def _ignorable(name: str, spec: ModelSpec) -> bool:
    """Tensors that checkpoints carry along: the head's copy of tied embeddings, rope tables."""
    if name.endswith("rotary_emb.inv_freq"):
        return True
    return spec.tied_embeddings and name == "lm_head.weight"


def _some(names: Iterable[str]) -> str:
    first, *rest = names
    return f"{first!r}" + (f" (and {len(rest)} more)" if rest else "")
