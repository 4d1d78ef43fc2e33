#!/usr/bin/env python3
"""Proves the recorder against llama.cpp on the same weights and writes the evidence as JSON.

Both run the same token ids: the prompt and the recorder's greedy continuation. Compared are the
token ids of the prompt text, the most likely next token at every position, the logits, and the
post-RoPE q, k and v of the recorded layers, element by element. llama.cpp runs three times:

- f32_weights: on a copy of the weights dequantized to F32, keys and values cached as F32;
- f32_weights_f16_cache: the same weights, keys and values cached as F16;
- packaged_weights: on the GGUF as it is, F16 cache, where llama.cpp also quantizes activations
  to 8 bits before every product with a quantized matrix. The recorder does not.

The first two must agree but for near ties (see `acceptable`); the third is reported as it is.
"""

import argparse
import ctypes
import json
import platform
import sys
import tempfile
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from llama_cpp._ggml import libggml
from numpy.typing import NDArray

import record
from weights import GgufModel, packaged_gguf

Float32 = NDArray[np.float32]

# Limits for the runs on F32 weights. The recorder rounds q, k and v to fp16 in 30 layers and
# llama.cpp rounds other intermediates; both perturb logits of size 20 in the third digit.
LOGIT_LIMIT = 0.1
TENSOR_LIMIT = 2e-3  # rms of the difference over rms of the values, per layer and tensor


@dataclass
class Reply:
    """What llama.cpp computed for the same tokens."""

    logits: Float32  # [tokens][vocabulary]
    tensors: dict[str, Float32]  # "q-0", "k-0", "v-0", ...: [tokens][heads][head_dim]


@dataclass(frozen=True)
class Disagreement:
    """A position where the most likely next token differs; margins in logits, both positive."""

    position: int
    recorder_token: int
    llama_cpp_token: int
    recorder_margin: float
    llama_cpp_margin: float


@llama_cpp.llama_log_callback
def _drop_log(_level: int, _text: bytes, _user_data: int | None) -> None:
    """llama.cpp's progress is not wanted; its failures show in return values."""


class TensorTap:
    """Copies the last tensor of each wanted name while llama.cpp evaluates its graph."""

    def __init__(self, layers: list[int], head_dim: int) -> None:
        self._names = {
            f"{name.upper()}cur-{layer}": f"{name}-{layer}" for layer in layers for name in "qkv"
        }
        self._head_dim = head_dim
        self._get_name = libggml.ggml_get_name
        self._get_name.argtypes, self._get_name.restype = [ctypes.c_void_p], ctypes.c_char_p
        self._num_bytes = libggml.ggml_nbytes
        self._num_bytes.argtypes, self._num_bytes.restype = [ctypes.c_void_p], ctypes.c_size_t
        self._copy = libggml.ggml_backend_tensor_get
        self._copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t]
        self._copy.restype = None
        self.tensors: dict[str, Float32] = {}
        self.callback = llama_cpp.ggml_backend_sched_eval_callback(self._on_tensor)

    def _on_tensor(self, tensor: int, ask: bool, _: int | None) -> bool:
        name = self._get_name(tensor).decode().split(" ")[0]
        if name not in self._names:
            return not ask
        if not ask:
            data = np.empty(self._num_bytes(tensor) // 4, dtype=np.float32)
            self._copy(tensor, data.ctypes.data, 0, data.nbytes)
            self.tensors[self._names[name]] = data
        return True

    def shaped(self, num_tokens: int) -> dict[str, Float32]:
        return {
            name: data.reshape(num_tokens, -1, self._head_dim)
            for name, data in self.tensors.items()
        }


class LlamaCpp:
    """One GGUF file loaded by llama.cpp on the CPU."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp.llama_log_set(_drop_log, None)
        llama_cpp.llama_backend_init()
        self._threads = threads
        params = llama_cpp.llama_model_default_params()
        params.use_extra_bufts = False  # no repacking for AMX, which virtual machines may trap
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp cannot load {path}")
        self._vocabulary = llama_cpp.llama_model_get_vocab(self._model)

    def close(self) -> None:
        llama_cpp.llama_model_free(self._model)

    def tokenize(self, text: str) -> list[int]:
        """Plain text: no token in front, special tokens not parsed."""
        data = text.encode()
        ids = (llama_cpp.llama_token * (len(data) + 1))()
        count = llama_cpp.llama_tokenize(
            self._vocabulary, data, len(data), ids, len(ids), False, False
        )
        return list(ids[:count])

    def _context(self, num_tokens: int, cache_type: int, tap: TensorTap | None):  # noqa: ANN202
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = params.n_batch = params.n_ubatch = num_tokens
        params.n_threads = params.n_threads_batch = self._threads
        params.type_k = params.type_v = cache_type
        params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
        if tap is not None:
            params.cb_eval = tap.callback
        return llama_cpp.llama_init_from_model(self._model, params)

    def _decode(self, context, ids: list[int], first: int) -> Float32:  # noqa: ANN001
        batch = llama_cpp.llama_batch_init(len(ids), 0, 1)
        batch.n_tokens = len(ids)
        for index, token in enumerate(ids):
            batch.token[index] = token
            batch.pos[index] = first + index
            batch.n_seq_id[index] = 1
            batch.seq_id[index][0] = 0
            batch.logits[index] = True
        status = llama_cpp.llama_decode(context, batch)
        llama_cpp.llama_batch_free(batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        shape = (len(ids), llama_cpp.llama_vocab_n_tokens(self._vocabulary))
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), shape).copy()

    def evaluate(self, ids: list[int], cache_type: int, layers: list[int], head_dim: int) -> Reply:
        """All tokens in one batch, with q, k and v of the given layers."""
        tap = TensorTap(layers, head_dim)
        context = self._context(len(ids), cache_type, tap)
        logits = self._decode(context, ids, 0)
        llama_cpp.llama_free(context)
        return Reply(logits, tap.shaped(len(ids)))

    def continue_greedily(self, ids: list[int], num_generated: int, cache_type: int) -> list[int]:
        """Appends llama.cpp's own most likely tokens, one by one."""
        context = self._context(len(ids) + num_generated, cache_type, None)
        ids = list(ids)
        logits = self._decode(context, ids, 0)
        for _ in range(num_generated):
            ids.append(int(np.argmax(logits[-1])))
            logits = self._decode(context, ids[-1:], len(ids) - 1)
        llama_cpp.llama_free(context)
        return ids


def write_f32_copy(source: Path, target: Path) -> None:
    """The same model with every tensor dequantized to F32."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        sub_type = field.types[1] if len(field.types) > 1 else None
        value = int(gguf.LlamaFileType.ALL_F32) if key == "general.file_type" else field.contents()
        writer.add_key_value(key, value, field.types[0], sub_type)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _rounded(value: float) -> float:
    """Three significant digits are evidence enough."""
    return float(f"{value:.3g}")


def disagreements(recorder: Float32, other: Float32) -> list[Disagreement]:
    """Positions whose most likely token differs."""
    ours, theirs = recorder.argmax(axis=1), other.argmax(axis=1)
    return [
        Disagreement(
            position=int(at),
            recorder_token=int(ours[at]),
            llama_cpp_token=int(theirs[at]),
            recorder_margin=_rounded(recorder[at, ours[at]] - recorder[at, theirs[at]]),
            llama_cpp_margin=_rounded(other[at, theirs[at]] - other[at, ours[at]]),
        )
        for at in np.flatnonzero(ours != theirs)
    ]


def tensor_differences(recording: record.Recording, reply: Reply, layers: list[int]) -> dict:
    """Per layer and tensor: rms of the difference over rms of the values, and the largest."""
    found = {}
    for layer in layers:
        for name, half in zip("qkv", recording.session.recorded(layer), strict=True):
            ours, theirs = half.astype(np.float64), reply.tensors[f"{name}-{layer}"]
            difference = ours - theirs
            found[f"{name}-{layer}"] = {
                "relative_rms": _rounded(np.sqrt(np.mean(difference**2) / np.mean(ours**2))),
                "max_abs": _rounded(np.abs(difference).max()),
            }
    return found


def compare(recording: record.Recording, reply: Reply, layers: list[int]) -> dict:
    ours = recording.logits.astype(np.float32)
    differing = disagreements(ours, reply.logits)
    difference = np.abs(ours - reply.logits)
    return {
        "positions": len(ours),
        "agreeing_positions": len(ours) - len(differing),
        "max_logit_difference": _rounded(difference.max()),
        "rms_logit_difference": _rounded(np.sqrt(np.mean(difference.astype(np.float64) ** 2))),
        "disagreements": [asdict(one) for one in differing],
        "tensors": tensor_differences(recording, reply, layers),
    }


def first_difference(ours: list[int], theirs: list[int]) -> int | None:
    pairs = enumerate(zip(ours, theirs, strict=True))
    return next((at for at, (one, other) in pairs if one != other), None)


def acceptable(comparison: dict) -> bool:
    """Small differences everywhere, and no other token unless the two are closer than those."""
    return (
        comparison["max_logit_difference"] <= LOGIT_LIMIT
        and all(one["relative_rms"] <= TENSOR_LIMIT for one in comparison["tensors"].values())
        and all(one["recorder_margin"] <= LOGIT_LIMIT for one in comparison["disagreements"])
    )


def run_on(path: Path, cache_type: int, recording: record.Recording, options) -> dict:  # noqa: ANN001
    """One llama.cpp run, teacher-forced and free, compared with the recording."""
    ids, num_prompt = recording.token_ids, options.prompt_tokens
    head_dim = recording.session.recorded(options.layers[0])[0].shape[-1]
    model = LlamaCpp(path, options.threads)
    reply = model.evaluate(ids, cache_type, options.layers, head_dim)
    comparison = compare(recording, reply, options.layers)
    free = model.continue_greedily(ids[:num_prompt], options.generate, cache_type)
    comparison["free_generation_first_difference"] = first_difference(ids, free)
    prompt = options.prompt.read_text(encoding="utf-8")
    comparison["prompt_token_ids_equal"] = model.tokenize(prompt)[:num_prompt] == ids[:num_prompt]
    model.close()
    return comparison


def check(options: argparse.Namespace) -> dict:
    packaged = options.gguf or packaged_gguf()
    model = GgufModel(packaged)
    text = options.prompt.read_text(encoding="utf-8")
    ids = record.prompt_ids(model.tokenizer(), text, options.prompt_tokens)
    recording = record.record_sequence(model, ids, options.generate)
    with tempfile.TemporaryDirectory() as folder:
        f32_copy = Path(folder) / "f32.gguf"
        write_f32_copy(packaged, f32_copy)
        runs = {
            "f32_weights": run_on(f32_copy, llama_cpp.GGML_TYPE_F32, recording, options),
            "f32_weights_f16_cache": run_on(f32_copy, llama_cpp.GGML_TYPE_F16, recording, options),
        }
    runs["packaged_weights"] = run_on(packaged, llama_cpp.GGML_TYPE_F16, recording, options)
    strict = [runs["f32_weights"], runs["f32_weights_f16_cache"]]
    passed = all(run["prompt_token_ids_equal"] for run in runs.values())
    return {
        "schema": "kvproof recorder check",
        "version": 1,
        "passed": passed and all(map(acceptable, strict)),
        "limits_on_f32_weights": {"logit": LOGIT_LIMIT, "tensor_relative_rms": TENSOR_LIMIT},
        "weights_sha256": model.sha256,
        "prompt_tokens": options.prompt_tokens,
        "generated_tokens": options.generate,
        "versions": {name: version(name) for name in ("llama-cpp-python", "gguf", "numpy")}
        | {"llama.cpp": llama_cpp.llama_version().decode(), "python": platform.python_version()},
        "runs": runs,
    }


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="check_against_llama_cpp.py",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--out", type=Path, required=True, help="evidence file to write (.json)")
    parser.add_argument("--threads", type=int, default=2)
    record.add_sequence_arguments(parser)
    return parser.parse_args(arguments)


def main() -> int:
    options = parse_arguments(sys.argv[1:])
    evidence = check(options)
    options.out.write_text(json.dumps(evidence, indent=1) + "\n", encoding="utf-8")
    for name, run in evidence["runs"].items():
        print(
            f"{name}: {run['agreeing_positions']} of {run['positions']} next tokens agree, "
            f"largest logit difference {run['max_logit_difference']:.3g}"
        )
    print("passed" if evidence["passed"] else "FAILED")
    return 0 if evidence["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
