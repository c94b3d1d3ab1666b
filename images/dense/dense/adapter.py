"""A bottleneck adapter put into a BERT: what turns SPECTER2's base into its proximity model.

An adapter is a small network behind each layer's output: down to a fraction of the width, a
non-linearity, up again. Only the common form is read (one adapter after the feed-forward part,
residual before the layer norm, the layer norm before and after); any other is refused, because it
would give other vectors without a word.

Source: Pfeiffer et al., "AdapterFusion", EACL 2021, figure 3; file format of the AdapterHub:
``adapter_config.json`` and ``pytorch_adapter.bin`` (or ``adapter.safetensors``).
"""

from __future__ import annotations

import json
from pathlib import Path
from types import MethodType
from typing import Any

from dense.snapshot import ModelError

#: Settings of the form that is read; what a file leaves out is as here.
_FORM = {
    "mh_adapter": False, "output_adapter": True, "ln_before": False, "ln_after": False,
    "original_ln_before": True, "original_ln_after": True, "residual_before_ln": True,
    "adapter_residual_before_ln": False, "is_parallel": False, "cross_adapter": False,
    "phm_layer": False, "use_gating": False, "scaling": 1.0,
}  # fmt: skip
_TENSORS = (
    "adapter_down.0.weight", "adapter_down.0.bias", "adapter_up.weight", "adapter_up.bias"
)  # fmt: skip
_ACTIVATIONS = ("relu", "gelu", "silu", "tanh")


def put_adapter(model: Any, folder: Path) -> None:
    """Put the adapter in ``folder`` behind every layer of a BERT, in place.

    ``ModelError`` for an adapter of another form or size, or one that lacks a layer.
    """
    activation = _read_form(folder)
    weights = _read_weights(folder)
    layers = model.encoder.layer
    used = 0
    for number, layer in enumerate(layers):
        parts = {name: _one(weights, number, name) for name in _TENSORS}
        used += len(parts)
        _wrap(layer.output, parts, activation, model.config.hidden_size)
    if used != len(weights):
        raise ModelError(f"{folder.name} has {len(weights)} tensors, and {used} belong to a layer")


def _read_form(folder: Path) -> str:
    try:
        document = json.loads((folder / "adapter_config.json").read_bytes())
    except (OSError, ValueError):
        raise ModelError(f"{folder.name} has no readable adapter_config.json") from None
    config = document.get("config", document)
    for key, wanted in _FORM.items():
        if config.get(key, wanted) != wanted:
            raise ModelError(f"adapters with {key} {config[key]!r} are not supported")
    activation = str(config.get("non_linearity", "relu"))
    if activation not in _ACTIVATIONS:
        raise ModelError(f"the non-linearity {activation!r} is not supported")
    return activation


def _read_weights(folder: Path) -> dict[str, Any]:
    import torch

    if (folder / "adapter.safetensors").is_file():
        from safetensors.torch import load_file

        return dict(load_file(folder / "adapter.safetensors"))
    path = folder / "pytorch_adapter.bin"
    if not path.is_file():
        raise ModelError(f"{folder.name} has neither pytorch_adapter.bin nor adapter.safetensors")
    # weights_only: a pickle of a stranger must not run anything.
    return dict(torch.load(path, map_location="cpu", weights_only=True))


def _one(weights: dict[str, Any], layer: int, name: str) -> Any:
    found = [
        tensor
        for key, tensor in weights.items()
        if f"layer.{layer}.output.adapters." in key and key.endswith(f".{name}")
    ]
    if len(found) != 1:
        raise ModelError(f"{len(found)} tensors {name} for layer {layer}; one adapter is expected")
    return found[0].float()


def _wrap(output: Any, parts: dict[str, Any], activation: str, width: int) -> None:
    """Replace the forward of a layer's output: adapter between two layer norms."""
    import torch

    functional = torch.nn.functional
    act = {"relu": functional.relu, "gelu": functional.gelu, "silu": functional.silu}.get(
        activation, torch.tanh
    )
    down, up = parts["adapter_down.0.weight"], parts["adapter_up.weight"]
    if down.shape[1] != width or up.shape != (width, down.shape[0]):
        raise ModelError(f"an adapter for width {down.shape[1]} does not fit a model of {width}")

    def forward(self: Any, hidden_states: Any, input_tensor: Any) -> Any:
        hidden = self.dropout(self.dense(hidden_states))
        normed = self.LayerNorm(hidden + input_tensor)
        low = act(functional.linear(normed, down, parts["adapter_down.0.bias"]))
        adapted = functional.linear(low, up, parts["adapter_up.bias"]) + hidden
        return self.LayerNorm(adapted + input_tensor)

    output.forward = MethodType(forward, output)
