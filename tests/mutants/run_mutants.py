#!/usr/bin/env python3
"""Runs the mutants of one role through `kvproof verify --kernel` and checks that each gets its verdict.

    run_mutants.py decode|decode_tiers|quantize|gather_quantize|demote|score_update
                   --kvproof build/default/bin/kvproof --ptx build/default/gpu/kernels
                   [--only NAME] [--keep FOLDER] [--jobs N]

Before the mutants, every kernel and case they use runs with the unmutated PTX on the same path and must pass.
Exit code 0: every mutant got the expected verdict. 1: one did not, an anchor is lost, or a control failed. 2: usage.
"""
import argparse
import importlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import mutant as definitions  # noqa: E402
import ptx  # noqa: E402

TIMEOUT_S = 120
PARAMS = {"decode": "decode_params", "decode_tiers": "decode_params", "quantize": "quantize_params",
          "gather_quantize": "quantize_params", "demote": "demote_params",
          "score_update": "score_update_params"}  # the parameter struct of a role's kernels


class Modules:
    """The PTX files of a build, and the layout of the parameter structs."""

    def __init__(self, folder, params_header):
        self.texts = {p.name: p.read_text() for p in sorted(pathlib.Path(folder).glob("*.ptx"))}
        header = pathlib.Path(params_header).read_text()
        self.fields = {role: ptx.read_fields(header, struct) for role, struct in PARAMS.items()}

    def kernel(self, role, target):
        """A fresh copy to edit."""
        entry = target.entry(role)
        holders = [name for name, text in self.texts.items() if f".entry {entry}(" in text]
        if len(holders) != 1:
            raise ptx.AnchorLost(f"kernel {entry} in exactly one PTX file of the build, found {holders}; build afresh")
        return ptx.read_entry(self.texts[holders[0]], entry, self.fields[role])


def verify(kvproof, kernel_file, case):
    """Verdict, exit code and detail of one case with the given PTX."""
    jsonl = kernel_file.with_suffix(".jsonl")
    command = [kvproof, "verify", "--device", "emulator", "--quiet", "--filter", case, "--kernel", str(kernel_file),
               "--jsonl", str(jsonl)]
    if "/layer" in case:
        command += ["--steps", "2"]
    else:
        command += ["--suite", "nightly" if case.startswith("long/") else "smoke"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S,
                             env={**os.environ, "OMP_NUM_THREADS": "1"})
    except subprocess.TimeoutExpired:
        return "TIMEOUT", None, f"no end within {TIMEOUT_S} s"
    if not jsonl.exists():
        return "NO VERDICT", run.returncode, (run.stderr or run.stdout).strip()
    lines = [json.loads(line) for line in jsonl.read_text().splitlines()]
    cases = [line for line in lines if "case" in line]
    if len(cases) != 1 or cases[0]["case"] != case:
        return "NO VERDICT", run.returncode, f"expected the case {case} alone, got {[c['case'] for c in cases]}"
    # A case that ended in a fault lists no kernels.
    if cases[0]["verdict"] != "FAULT" and kernel_file.name.split(".")[0] not in cases[0]["kernels"]:
        return "NOT RUN", run.returncode, f"{case} does not launch {kernel_file.name.split('.')[0]}"
    return cases[0]["verdict"], run.returncode, cases[0]["detail"]


@dataclass(frozen=True)
class Row:
    name: str
    entry: str
    outcome: str
    detail: str
    good: bool

    def __str__(self):
        head = f"{'ok ' if self.good else 'BAD'}  {self.name:<44} {self.entry:<33} {self.outcome:<8}"
        return f"{head} {self.detail:.140}".rstrip() if self.good else f"{head.rstrip()}\n     {self.detail}"


def run_control(arguments, modules, folder, role, target, case):
    entry = target.entry(role)
    try:
        text = modules.kernel(role, target).text()
    except ptx.AnchorLost as lost:
        return Row("(unmutated)", entry, "LOST", f"nothing in the build is: {lost}", False)
    file = folder / f"{entry}.control_{case.replace('/', '_')}.ptx"
    file.write_text(text)
    verdict, code, detail = verify(arguments.kvproof, file, case)
    good = (verdict, code) == ("PASSED", 0)
    return Row("(unmutated)", entry, verdict, f"{case} {detail}".strip(), good)


def run_mutant(arguments, modules, folder, m, target):
    entry, case = target.entry(m.role), target.case(m.role, m.case)
    try:
        kernel = modules.kernel(m.role, target)
        before = kernel.text()
        try:
            m.edit(kernel)
        except (IndexError, KeyError, ValueError, TypeError, AttributeError) as e:
            raise ptx.AnchorLost(f"what the edit walks through ({type(e).__name__}: {e})") from e
        if kernel.text() == before:
            raise ptx.AnchorLost("the edit changed nothing")
    except ptx.AnchorLost as lost:
        return Row(m.name, entry, "LOST", f"{m.bug} Nothing in the PTX is: {lost}. Adapt the anchor in "
                   f"tests/mutants/{m.role}_mutants.py", False)
    file = folder / f"{entry}.{m.name}.ptx"
    file.write_text(kernel.text())
    verdict, code, detail = verify(arguments.kvproof, file, case)
    good = m.expect.met_by(verdict, code, detail)
    if not good:
        detail = f"expected {m.expect}; got exit code {code}: {detail or 'nothing found'}. Bug: {m.bug} Case: {case}"
    return Row(m.name, entry, verdict, detail, good)


def run_all(arguments, modules, mutants, out=print):
    """Prints the table and returns the exit code."""
    folder = pathlib.Path(arguments.keep or tempfile.mkdtemp(prefix="kvproof_mutants_"))
    folder.mkdir(parents=True, exist_ok=True)
    pairs = [(m, t) for m in mutants for t in m.targets]
    controls = sorted({(m.role, t, t.case(m.role, m.case)) for m, t in pairs}, key=str)
    with ThreadPoolExecutor(arguments.jobs) as pool:
        rows = list(pool.map(lambda c: run_control(arguments, modules, folder, *c), controls))
        rows += list(pool.map(lambda p: run_mutant(arguments, modules, folder, *p), pairs))
    for row in rows:
        out(str(row))
    bad = [r for r in rows if not r.good]
    out(f"{len(controls)} unmutated kernels on their cases, {len(mutants)} mutants on {len(pairs)} kernels, "
        f"{len(bad)} without the expected verdict")
    if not arguments.keep:
        for file in folder.iterdir():
            file.unlink()
        folder.rmdir()
    return 1 if bad or not pairs else 0


def parse(argv):
    root = pathlib.Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("role", choices=list(PARAMS))
    parser.add_argument("--kvproof", required=True, help="the built command")
    parser.add_argument("--ptx", required=True, help="folder of the built PTX files")
    parser.add_argument("--params", default=str(root / "gpu/kernels/kernel_params.hpp"))
    parser.add_argument("--only", default="", help="run the mutants whose name contains this")
    parser.add_argument("--keep", help="folder that keeps the mutated PTX and the verdicts")
    parser.add_argument("--jobs", type=int, default=max(2, os.cpu_count() or 1))
    return parser.parse_args(argv)


def main(argv):
    arguments = parse(argv)
    importlib.import_module(f"{arguments.role}_mutants")
    chosen = [m for m in definitions.ALL if m.role == arguments.role and arguments.only in m.name]
    if not chosen:
        print(f"no mutant's name contains '{arguments.only}'", file=sys.stderr)
        return 2
    return run_all(arguments, Modules(arguments.ptx, arguments.params), chosen)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
