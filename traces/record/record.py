#!/usr/bin/env python3
"""Records an attention trace: post-RoPE q, k and v of some layers of one sequence, in fp16.

The prompt is cut to a number of tokens and fed as plain text (no chat template, no token in
front); the continuation is greedy. The file is the same, byte for byte, on every run.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

from bpe import BpeTokenizer
from llama import Array, LlamaSession, ModelConfig, greedy_continuation
from trace_file import AttentionTrace, LayerTrace, write_trace
from weights import (
    PACKAGE,
    PACKAGE_VERSION,
    PACKAGED_SHA256,
    GgufModel,
    WeightsError,
    file_sha256,
    packaged_gguf,
)

DEFAULT_PROMPT = Path(__file__).with_name("prompt.txt")


class UsageError(Exception):
    """The arguments do not fit the model or the prompt."""


@dataclass(frozen=True)
class Recording:
    """One sequence that went through the model."""

    session: LlamaSession
    token_ids: list[int]
    logits: Array  # [tokens][vocabulary]


def prompt_ids(tokenizer: BpeTokenizer, text: str, num_tokens: int) -> list[int]:
    """The first num_tokens tokens of text."""
    ids = tokenizer.encode(text)
    if len(ids) < num_tokens:
        raise UsageError(
            f"the prompt has {len(ids)} tokens, {num_tokens} are needed: "
            "give a longer --prompt or a smaller --prompt-tokens"
        )
    return ids[:num_tokens]


def check_layers(layers: list[int], num_layers: int) -> None:
    if layers != sorted(set(layers)) or layers[0] < 0 or layers[-1] >= num_layers:
        raise UsageError(
            f"--layers {','.join(map(str, layers))}: must ascend within 0..{num_layers - 1}"
        )


def record_sequence(model: GgufModel, ids: list[int], num_generated: int) -> Recording:
    """Prefills ids and continues greedily; progress goes to stderr."""

    def progress(done: int) -> None:
        if sys.stderr.isatty():
            end = "\n" if done == num_generated else ""
            print(f"\rgenerated {done} of {num_generated} tokens", end=end, file=sys.stderr)

    session = LlamaSession(model.config(), model.weights())
    token_ids, logits = greedy_continuation(session, ids, num_generated, progress)
    return Recording(session, token_ids, logits)


def provenance(model: GgufModel, config: ModelConfig, num_prompt: int, num_generated: int) -> str:
    """How the trace was made; depends on the inputs only."""
    source = "a GGUF file given by the caller"
    if model.sha256 == PACKAGED_SHA256:
        source = f"the GGUF file in the Python package {PACKAGE} {PACKAGE_VERSION}"
    return (
        f"Recorded by kvproof traces/record. Model: {config.name}, weights of {source} "
        f"(sha256 {model.sha256}; {model.quantization()}), dequantized. "
        f"Sequence: {num_prompt} prompt tokens of plain text (no chat template, no token in front; "
        f"greedy continuation of {num_generated} tokens, which an end-of-text token does not end). "
        "Forward pass: numpy float64. Post-RoPE q and k, and v, are rounded to fp16 (to nearest "
        "even) before attention reads them in every layer; these rounded values are what is "
        "recorded. RoPE rotates adjacent pairs (2i, 2i + 1), the interleaved layout of GGUF."
    )


def record(options: argparse.Namespace) -> None:
    model = GgufModel(options.gguf or packaged_gguf())
    config = model.config()
    check_layers(options.layers, config.num_layers)
    text = options.prompt.read_text(encoding="utf-8")
    ids = prompt_ids(model.tokenizer(), text, options.prompt_tokens)
    recording = record_sequence(model, ids, options.generate)
    trace = AttentionTrace(
        config=config,
        prompt_length=options.prompt_tokens,
        token_ids=recording.token_ids,
        layers=[LayerTrace(layer, *recording.session.recorded(layer)) for layer in options.layers],
        provenance=provenance(model, config, options.prompt_tokens, options.generate),
        license=model.license(),
    )
    write_trace(options.out, trace)
    print(f"{file_sha256(options.out)}  {options.out}")


def _layer_list(text: str) -> list[int]:
    try:
        return [int(item) for item in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text}: give layers as 0,9,19,29") from None


def _count(minimum: int):  # noqa: ANN202 (a converter for argparse)
    def count(text: str) -> int:
        value = int(text)
        if value < minimum:
            raise argparse.ArgumentTypeError(f"must be at least {minimum}")
        return value

    return count


def add_sequence_arguments(parser: argparse.ArgumentParser) -> None:
    """What decides the recorded sequence."""
    parser.add_argument("--gguf", type=Path, help=f"weights (default: those of package {PACKAGE})")
    parser.add_argument("--prompt", type=Path, default=DEFAULT_PROMPT, help="UTF-8 text")
    parser.add_argument("--prompt-tokens", type=_count(1), default=512, metavar="N")
    parser.add_argument("--generate", type=_count(0), default=128, metavar="N")
    parser.add_argument(
        "--layers",
        type=_layer_list,
        default=[0, 9, 19, 29],
        metavar="A,B,...",
        help="layers to record (default: 0,9,19,29)",
    )


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="record.py", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="trace file to write (.h5)")
    add_sequence_arguments(parser)
    return parser.parse_args(arguments)


def main() -> int:
    """Exit codes as the kvproof command's: 2 usage, 3 bad input data."""
    try:
        record(parse_arguments(sys.argv[1:]))
    except UsageError as error:
        print(f"record.py: {error}", file=sys.stderr)
        return 2
    except (WeightsError, OverflowError, OSError, UnicodeDecodeError) as error:
        print(f"record.py: {error}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
