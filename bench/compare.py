#!/usr/bin/env python3
"""Compares two results in Google Benchmark's JSON format, name by name: time now over time then.

    compare.py NEW.json [--baseline FILE] [--threshold PERCENT] [--filter REGEX] [--quiet]

The baseline is bench/results/h200.json unless named. Of repetitions the median counts. Exit codes: 0 nothing is slower,
1 something is slower by more than the threshold or failed in NEW, 2 usage or no name in common, 3 a file cannot be used.
"""

import argparse
import json
import math
import re
import statistics
import sys
from pathlib import Path

BASELINE = Path(__file__).resolve().parent / "results" / "h200.json"
MICROSECONDS = {"ns": 1e-3, "us": 1.0, "ms": 1e3, "s": 1e6}


class BadInput(Exception):
    pass


class Results:
    """What one file says: microseconds by name, error messages by name, the context."""

    def __init__(self, path):
        self.path = path
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as e:
            raise BadInput(f"{path}: cannot be read: {e}") from e
        except ValueError as e:
            raise BadInput(f"{path}: no JSON ({e}); was the run cut short?") from e
        if (not isinstance(data, dict) or not isinstance(data.get("context"), dict)
                or not isinstance(data.get("benchmarks"), list)):
            raise BadInput(f"{path}: not in Google Benchmark's format: no `context` and `benchmarks`; "
                           "write it with bench_kernels --benchmark_out=FILE")
        self.context = data["context"]
        if "emulator" in str(self.context.get("device", "")):
            raise BadInput(f"{path}: comes from the emulator, whose times mean nothing")
        samples, medians, self.errors = {}, {}, {}
        for number, row in enumerate(data["benchmarks"]):
            self._read(row, f"{path}: benchmarks[{number}]", samples, medians)
        self.times = {name: medians.get(name, statistics.median(samples.get(name) or [math.nan]))
                      for name in {**samples, **medians} if name not in self.errors}

    def _read(self, row, where, samples, medians):
        if not isinstance(row, dict):
            raise BadInput(f"{where}: no object")
        name = row.get("run_name", row.get("name"))
        if not isinstance(name, str) or not name:
            raise BadInput(f"{where}: no name")
        if row.get("error_occurred"):
            self.errors[name] = str(row.get("error_message", "no message"))
            return
        aggregate = row.get("aggregate_name") if row.get("run_type") == "aggregate" else None
        if aggregate not in (None, "median"):
            return
        time, unit = row.get("real_time"), row.get("time_unit")
        if not isinstance(unit, str) or unit not in MICROSECONDS:
            raise BadInput(f"{where} ({name}): time_unit {unit!r} is none of {', '.join(MICROSECONDS)}")
        if isinstance(time, bool) or not isinstance(time, (int, float)) or not math.isfinite(time) or time <= 0:
            raise BadInput(f"{where} ({name}): real_time {time!r} is no positive number")
        us = time * MICROSECONDS[unit]
        if aggregate is None:
            samples.setdefault(name, []).append(us)
        else:
            medians[name] = us


def differing_context(old, new):
    """Warnings about what makes times hard to compare."""
    warnings = []
    for key in ("device", "driver"):
        a, b = old.context.get(key), new.context.get(key)
        if a != b:
            warnings.append(f"{key} differs: {a or 'unknown'} then, {b or 'unknown'} now")
    try:
        ratio = float(new.context["read_peak_bytes_per_second"]) / float(old.context["read_peak_bytes_per_second"])
    except (KeyError, ValueError, TypeError, ZeroDivisionError):
        return warnings
    if not abs(ratio - 1) <= 0.01:
        warnings.append(f"the read peak is {ratio:.3f} times what it was: cards differ by a few per cent")
    return warnings


def compare(old, new, threshold, pattern):
    """(lines of the table, names that are slower or failed, names on one side only, names in common)"""
    wanted = {name for name in {*old.times, *new.times, *new.errors} if pattern.search(name)}
    common = sorted(wanted & old.times.keys() & new.times.keys())
    width = max((len(n) for n in common), default=0)
    lines, bad = [], []
    for name in common:
        ratio = new.times[name] / old.times[name]
        mark = ""
        if not ratio <= 1 + threshold / 100:
            mark = "  SLOWER"
            bad.append(name)
        elif ratio < 1 - threshold / 100:
            mark = "  faster"
        lines.append(f"{name:<{width}}  {old.times[name]:12.2f} us -> {new.times[name]:12.2f} us  x{ratio:.3f}{mark}")
    for name in sorted(wanted & new.errors.keys()):
        lines.append(f"{name}  FAILED: {new.errors[name]}")
        bad.append(name)
    gone = sorted((wanted & old.times.keys()) - new.times.keys() - new.errors.keys())
    added = sorted((wanted & new.times.keys()) - old.times.keys())
    return lines, bad, gone, added, common


def per_cent(text):
    value = float(text)
    if not 0 <= value < 1000:
        raise argparse.ArgumentTypeError("not between 0 and 1000")
    return value


def regex(text):
    try:
        return re.compile(text)
    except re.error as e:
        raise argparse.ArgumentTypeError(f"no regular expression: {e}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("new", help="results of the run in question")
    parser.add_argument("--baseline", default=BASELINE, help="results to compare with (default: %(default)s)")
    parser.add_argument("--threshold", type=per_cent, default=5.0, metavar="PERCENT",
                        help="how much slower is too slow (default: %(default)s)")
    parser.add_argument("--filter", type=regex, default=re.compile(""), metavar="REGEX", help="only these names")
    parser.add_argument("--quiet", action="store_true", help="only names that are slower or failed, and the summary")
    options = parser.parse_args()
    try:
        new, old = Results(options.new), Results(options.baseline)
    except BadInput as e:
        print(f"compare.py: {e}", file=sys.stderr)
        return 3
    for warning in differing_context(old, new):
        print(f"compare.py: warning: {warning}", file=sys.stderr)
    lines, bad, gone, added, common = compare(old, new, options.threshold, options.filter)
    for line in lines:
        if not options.quiet or "  SLOWER" in line or "  FAILED" in line:
            print(line)
    for what, names in (("only in the baseline", gone), ("only in the new results", added)):
        if names:
            print(f"{what}: {len(names)}" + ("" if options.quiet else "".join(f"\n  {n}" for n in names)))
    print(f"{len(common)} compared, {len(bad)} slower by more than {options.threshold:g} % or failed")
    if bad:
        return 1
    if not common:
        print("compare.py: the files have no name in common", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
