"""Writes attention traces: HDF5, schema v1 of traces/README.md, byte-reproducible.

The metadata are those of HDF5 1.10, which are under checksums, and strings have a fixed length, so
that they lie in them. HDF5 never converts: every array has its file type before h5py sees it.
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
FORMAT = h5py.h5f.LIBVER_V110  # oldest with checksums, newest that HDF5 1.10 reads
MAX_COMPACT_ATTRIBUTES = 32  # so many lie in the header of their object, not in a heap


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
        with _create_file(partial) as file:
            _write_attributes(file, trace)
            _write_array(file, "token_ids", np.asarray(trace.token_ids, dtype="<i4"))
            layers = _create_group(file, "layers")
            for layer in trace.layers:
                _write_layer(_create_group(layers, str(layer.layer)), layer)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


# h5py's own calls cannot turn the times of groups off.
def _create_file(path: Path) -> h5py.File:
    access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
    access.set_libver_bounds(FORMAT, FORMAT)
    access.set_fclose_degree(h5py.h5f.CLOSE_STRONG)
    creation = h5py.h5p.create(h5py.h5p.FILE_CREATE)
    creation.set_obj_track_times(False)
    creation.set_attr_phase_change(MAX_COMPACT_ATTRIBUTES, 0)
    return h5py.File(h5py.h5f.create(os.fsencode(path), h5py.h5f.ACC_TRUNC, creation, access))


def _create_group(parent: h5py.Group, name: str) -> h5py.Group:
    creation = h5py.h5p.create(h5py.h5p.GROUP_CREATE)
    creation.set_obj_track_times(False)
    return h5py.Group(h5py.h5g.create(parent.id, name.encode(), gcpl=creation))


def _write_attributes(file: h5py.File, trace: AttentionTrace) -> None:
    config = trace.config
    _write_text(file, "schema", "kvproof.attention_trace")
    file.attrs["schema_version"] = np.uint32(1)
    _write_text(file, "model_name", config.name)
    for name in ("num_layers", "query_heads", "kv_heads", "head_dim"):
        file.attrs[name] = np.int32(getattr(config, name))
    file.attrs["rope_theta"] = np.float64(config.rope_theta)
    file.attrs["softmax_scale"] = np.float64(config.softmax_scale)
    file.attrs["num_tokens"] = np.int64(len(trace.token_ids))
    file.attrs["prompt_length"] = np.int64(trace.prompt_length)
    _write_text(file, "provenance", trace.provenance)
    _write_text(file, "license", trace.license)


def _write_text(item: h5py.HLObject, name: str, text: str) -> None:
    """Strings of variable length would lie in a heap without checksum."""
    stored = text.encode() or b"\0"
    item.attrs.create(name, np.bytes_(stored), dtype=h5py.string_dtype("utf-8", len(stored)))


def _write_layer(group: h5py.Group, layer: LayerTrace) -> None:
    group.attrs["layer"] = np.int32(layer.layer)
    for name, values in (("q", layer.q), ("k", layer.k), ("v", layer.v)):
        dataset = _write_array(group, name, values)
        _write_text(dataset, "dtype", "float16")
        _write_text(dataset, "axes", "token, head, channel")


def _write_array(group: h5py.Group, name: str, values: NDArray) -> h5py.Dataset:
    """Chunks of whole tokens."""
    tokens = min(len(values), TOKENS_PER_CHUNK)
    return group.create_dataset(
        name, data=values, chunks=(tokens, *values.shape[1:]), track_times=False, **FILTERS
    )
