"""Writes attention traces: HDF5, schema v1 of traces/README.md, byte-reproducible.

HDF5 never converts: every array has its file type before h5py sees it.
"""

import os
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
from numpy.typing import NDArray

from llama import Half, ModelConfig

FILTERS = {"compression": "gzip", "compression_opts": 6, "shuffle": True, "fletcher32": True}
TOKENS_PER_CHUNK = 128


@dataclass(frozen=True)
class LayerTrace:
    """q [tokens][query_heads][head_dim]; k, v [tokens][kv_heads][head_dim]."""

    layer: int
    q: Half
    k: Half
    v: Half


@dataclass(frozen=True)
class AttentionTrace:
    """One sequence; the first prompt_length tokens are the prompt."""

    config: ModelConfig
    prompt_length: int
    token_ids: list[int]
    layers: list[LayerTrace]
    provenance: str
    license: str


def write_trace(path: Path, trace: AttentionTrace) -> None:
    """Writes beside the target and renames: a failure leaves nothing behind."""
    partial = path.with_name(path.name + ".partial")
    try:
        with h5py.File(partial, "w", libver=("earliest", "v108"), track_order=False) as file:
            _write_attributes(file, trace)
            _write_array(file, "token_ids", np.asarray(trace.token_ids, dtype="<i4"))
            for layer in trace.layers:
                _write_layer(file.create_group(f"layers/{layer.layer}"), layer)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_attributes(file: h5py.File, trace: AttentionTrace) -> None:
    config = trace.config
    file.attrs["schema"] = "kvproof.attention_trace"
    file.attrs["schema_version"] = np.uint32(1)
    file.attrs["model_name"] = config.name
    for name in ("num_layers", "query_heads", "kv_heads", "head_dim"):
        file.attrs[name] = np.int32(getattr(config, name))
    file.attrs["rope_theta"] = np.float64(config.rope_theta)
    file.attrs["softmax_scale"] = np.float64(config.softmax_scale)
    file.attrs["num_tokens"] = np.int64(len(trace.token_ids))
    file.attrs["prompt_length"] = np.int64(trace.prompt_length)
    file.attrs["provenance"] = trace.provenance
    file.attrs["license"] = trace.license


def _write_layer(group: h5py.Group, layer: LayerTrace) -> None:
    group.attrs["layer"] = np.int32(layer.layer)
    for name, values in (("q", layer.q), ("k", layer.k), ("v", layer.v)):
        dataset = _write_array(group, name, values)
        dataset.attrs["dtype"] = "float16"
        dataset.attrs["axes"] = "token, head, channel"


def _write_array(group: h5py.Group, name: str, values: NDArray) -> h5py.Dataset:
    """Chunks of whole tokens."""
    tokens = min(len(values), TOKENS_PER_CHUNK)
    return group.create_dataset(
        name, data=values, chunks=(tokens, *values.shape[1:]), track_times=False, **FILTERS
    )
