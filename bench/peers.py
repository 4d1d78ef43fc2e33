#!/usr/bin/env python3
"""Times PyTorch's decode attention (scaled_dot_product_attention on an fp16 cache) for the shapes of bench_kernels.

    peers.py [--out FILE.json] [--filter REGEX] [--commit TEXT] [--peak-from KERNELS.json] [--list]

Names: sdpa/BACKEND/MODEL/batch:B/tokens:T with BACKEND cudnn, flash or efficient. Grouped queries run in each way that
the backend takes: enable_gqa, or folded: the group's queries as rows of one head, which without a mask is the same
attention. The faster one is reported and named in the label. Inputs rotate over more than four times the cache,
launches are replayed from a CUDA graph, and each output is compared with fp64 first, within 2e-3.
Output is Google Benchmark's JSON. Exit codes: 0 done, 1 an output is wrong, 2 usage, 3 bad --peak-from, 69 no PyTorch or no GPU.
"""

import argparse
import datetime
import json
import re
import statistics
import subprocess
import sys
from pathlib import Path

MODELS = {  # query heads, KV heads, head_dim: models of bench_case.hpp
    "llama3-8b": (32, 8, 128),
    "llama2-7b": (32, 32, 128),
    "qwen2.5-7b": (28, 4, 128),
    "smollm2-135m": (9, 3, 64),
}
BACKENDS = {"cudnn": "CUDNN_ATTENTION", "flash": "FLASH_ATTENTION", "efficient": "EFFICIENT_ATTENTION"}
BATCHES = (1, 8, 64)
TOKENS = (4096, 16384, 65536)
REPLAYS = 9
TOLERANCE = 2e-3  # fp16 products and probabilities; outputs are means of standard normal values


class Unavailable(Exception):
    pass


class BadPeak(Exception):
    pass


def shapes():
    return [(model, batch, tokens) for model in MODELS for batch in BATCHES for tokens in TOKENS]


def name_of(backend, shape):
    model, batch, tokens = shape
    return f"sdpa/{backend}/{model}/batch:{batch}/tokens:{tokens}"


def moved_bytes(shape):
    """K, V, q and out, each once, in fp16."""
    model, batch, tokens = shape
    q_heads, kv_heads, head_dim = MODELS[model]
    return 2 * batch * head_dim * (2 * kv_heads * tokens + 2 * q_heads)


def row(name, us=None, shape=None, peak=None, label="", error=None):
    """One entry of Google Benchmark's JSON."""
    entry = {"name": name, "run_name": name, "run_type": "iteration", "repetitions": 1, "repetition_index": 0,
             "threads": 1, "iterations": 1}
    if error is not None:
        return {**entry, "error_occurred": True, "error_message": error, "real_time": 0.0, "cpu_time": 0.0,
                "time_unit": "us"}
    middle = statistics.median(us)
    rate = moved_bytes(shape) / (middle * 1e-6)
    entry |= {"real_time": middle, "cpu_time": middle, "time_unit": "us", "bytes_per_second": rate,
              "tokens_per_second": shape[1] * shape[2] / (middle * 1e-6), "fastest_us": min(us), "slowest_us": max(us)}
    if peak:
        entry["share_of_read_peak"] = rate / peak
    return {**entry, "label": label}


def open_torch():
    try:
        import torch
    except ImportError as e:
        raise Unavailable(f"no PyTorch here ({e}); run with a Python that has it") from e
    if not torch.cuda.is_available():
        raise Unavailable("PyTorch finds no GPU")
    return torch


def first_line(error):
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


class Shape:
    """Inputs of one shape in several copies, and the ways to hand them to attention."""

    def __init__(self, torch, shape):
        self.torch, self.shape = torch, shape
        model, self.batch, self.tokens = shape
        self.q_heads, self.kv_heads, self.head_dim = MODELS[model]
        l2 = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 60 << 20)
        self.copies = -(-4 * l2 // moved_bytes(shape))
        torch.manual_seed(1)
        kv = (self.batch, self.kv_heads, self.tokens, self.head_dim)

        def normal(size):
            return torch.empty(size, dtype=torch.float16, device="cuda").normal_()

        self.k = [normal(kv) for _ in range(self.copies)]
        self.v = [normal(kv) for _ in range(self.copies)]
        self.q = normal((self.batch, self.q_heads, 1, self.head_dim))

    def ways(self):
        """Label -> function of a copy; output [batch][q_heads][1][head_dim], folded: [batch][kv_heads][group][head_dim]."""
        sdpa = self.torch.nn.functional.scaled_dot_product_attention
        group = self.q_heads // self.kv_heads
        if group == 1:
            return {"one query head a KV head": lambda i: sdpa(self.q, self.k[i], self.v[i])}
        folded = self.q.view(self.batch, self.kv_heads, group, self.head_dim)
        return {"enable_gqa": lambda i: sdpa(self.q, self.k[i], self.v[i], enable_gqa=True),
                "folded": lambda i: sdpa(folded, self.k[i], self.v[i])}

    def error_of(self, out):
        """The largest distance from fp64 attention, over the first and last sequence's first and last KV head."""
        worst, out = 0.0, out.flatten(1, 2)  # [batch][q_heads][head_dim]
        group = self.q_heads // self.kv_heads
        for b in {0, self.batch - 1}:
            for h in {0, self.kv_heads - 1}:
                q = self.q[b, h * group:(h + 1) * group, 0].double()
                p = (q @ self.k[0][b, h].double().T / self.head_dim ** 0.5).softmax(-1)
                expected = p @ self.v[0][b, h].double()
                found = out[b, h * group:(h + 1) * group].double()
                distance = (found - expected).abs().max().item()
                worst = distance if not distance <= worst else worst  # NaN stays
        return worst

    def time(self, call):
        """Microseconds of one call, from each of several replays of a graph of many calls."""
        cuda = self.torch.cuda
        calls = max(self.copies, min(64, max(2, int(2e9 / moved_bytes(self.shape)))))
        stream = cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):  # plans and workspaces are made outside of the capture
            call(0)
        cuda.current_stream().wait_stream(stream)
        graph = cuda.CUDAGraph()
        with cuda.graph(graph):
            for i in range(calls):
                call(i % self.copies)
        graph.replay()
        us = []
        for _ in range(REPLAYS):
            begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
            begin.record()
            graph.replay()
            end.record()
            end.synchronize()
            us.append(begin.elapsed_time(end) * 1000 / calls)
        graph.reset()
        return us


def run_backend(torch, inputs, backend, peak):
    """(entry, whether an output was wrong)"""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    name, best, refusals, wrong = name_of(backend, inputs.shape), None, [], False
    with torch.inference_mode(), sdpa_kernel([getattr(SDPBackend, BACKENDS[backend])]):
        for label, call in inputs.ways().items():
            try:
                error = inputs.error_of(call(0))
                if not error <= TOLERANCE:
                    refusals.append(f"{label}: off by {error:.3g} from fp64")
                    wrong = True
                    continue
                us = inputs.time(call)
            except torch.cuda.OutOfMemoryError:
                refusals.append(f"{label}: out of memory")
            except (RuntimeError, TypeError) as e:  # the backend does not take these inputs
                refusals.append(f"{label}: {first_line(e)}")
            else:
                if best is None or statistics.median(us) < statistics.median(best[1]):
                    best = label, us
    if best is None:
        return row(name, error="; ".join(refusals)), wrong
    label = f"gqa:{best[0]} copies:{inputs.copies}" + "".join(f" ({r})" for r in refusals)
    return row(name, best[1], inputs.shape, peak, label), wrong


def driver_version():
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader", "-i", "0"],
                               capture_output=True, text=True, check=True, timeout=60)
        return found.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def context_of(torch, options, peak):
    context = {"date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
               "executable": "bench/peers.py", "device": torch.cuda.get_device_name(0),
               "driver": f"CUDA {torch.version.cuda}, driver {driver_version()}", "torch": torch.__version__,
               "cudnn": str(torch.backends.cudnn.version()), "commit": options.commit}
    return context | ({"read_peak_bytes_per_second": f"{peak:.0f}"} if peak else {})


def read_peak(path):
    try:
        return float(json.loads(Path(path).read_text(encoding="utf-8"))["context"]["read_peak_bytes_per_second"])
    except (OSError, ValueError, KeyError, TypeError) as e:
        raise BadPeak(f"--peak-from {path}: no read_peak_bytes_per_second in its context ({e!r})") from e


def run(options, wanted):
    torch = open_torch()
    peak = read_peak(options.peak_from) if options.peak_from else None
    free = torch.cuda.mem_get_info()[0]
    rows, wrong = [], False
    for shape in shapes():
        backends = [b for b in BACKENDS if name_of(b, shape) in wanted]
        if not backends:
            continue
        if moved_bytes(shape) * 1.1 > free:
            print(f"peers.py: left out, needs {moved_bytes(shape) / 1e9:.0f} GB: {shape}", file=sys.stderr)
            continue
        inputs = Shape(torch, shape)
        for backend in backends:
            entry, failed = run_backend(torch, inputs, backend, peak)
            wrong |= failed
            rows.append(entry)
            print(f"{entry['name']:<55} " + (f"{entry['real_time']:10.1f} us  {entry['label']}" if "label" in entry
                                             else f"not run: {entry['error_message']}"), file=sys.stderr)
        del inputs
        torch.cuda.empty_cache()
    text = json.dumps({"context": context_of(torch, options, peak), "benchmarks": rows}, indent=2) + "\n"
    if options.out:
        Path(options.out).write_text(text, encoding="utf-8")
    else:
        print(text, end="")
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--out", metavar="FILE", help="write the JSON there instead of to stdout")
    parser.add_argument("--filter", default="", metavar="REGEX", help="only these names")
    parser.add_argument("--commit", default="unknown", help="commit named in the context")
    parser.add_argument("--peak-from", metavar="FILE", help="results of bench_kernels from the same run, for its read peak")
    parser.add_argument("--list", action="store_true", help="print the names and stop; needs no PyTorch")
    options = parser.parse_args()
    try:
        pattern = re.compile(options.filter)
    except re.error as e:
        parser.error(f"--filter: {e}")
    names = [n for n in (name_of(b, s) for s in shapes() for b in BACKENDS) if pattern.search(n)]
    if not names:
        parser.error("--filter finds no name; --list prints them")
    if options.list:
        print("\n".join(names))
        return 0
    try:
        return run(options, set(names))
    except Unavailable as e:
        print(f"peers.py: {e}", file=sys.stderr)
        return 69
    except BadPeak as e:
        print(f"peers.py: {e}", file=sys.stderr)
        return 3


if __name__ == "__main__":
    sys.exit(main())
