#!/usr/bin/env python3
"""Which folder may include which: include_graph.py ROOT

Reads every #include of the tree and prints each breach of the rules below, one a line; exit code 1 if any.
`gpu/` and `reference/` share facts (`reference/spec`) and no arithmetic: a shared helper makes both sides wrong together.
"""

import re
import subprocess
import sys
from pathlib import Path

# Folder (longest prefix counts) -> folders it may include besides itself; "*" is everything but tests and bench.
# A row with an empty list stands alone. A folder that matches no row is an error: give it one.
ALLOWED = {
    "reference/spec": [],
    "reference": ["reference/spec"],
    "traces": ["reference/spec"],
    "simulator": ["reference/spec", "traces"],
    "gpu": ["reference/spec"],
    "gpu/device/cuda": ["gpu/device/device.hpp", "reference/spec"],
    "gpu/device/emulator": ["gpu/device/device.hpp", "reference/spec"],
    "verify": ["*"],
    "bench": ["*"],
    "tests": ["*", "tests"],
    "tests/bench": ["*", "tests", "bench"],
    # What an installed package offers, which is everything but verify.
    "tests/build/consumer": ["reference", "gpu", "traces"],
}
NOT_PRODUCT = ("tests", "bench")
SOURCES = {".hpp", ".cpp", ".h", ".c", ".cc", ".cu", ".cuh", ".inl", ".inc"}
# Files that the build writes and which include nothing.
GENERATED = {"kernel_modules.inc"}
# Folders besides the root in which a quoted include is looked up (target_include_directories).
EXTRA_ROOTS = {"tests": ["tests"]}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*(?:include|include_next|import)\b[ \t]*(.*)$')
TARGET = re.compile(r'"([^"]+)"|<([^>]+)>')


def strip_comments(text):
    """Text without comments; string literals and line numbers stay."""
    pattern = re.compile(r'//(?:\\\n|[^\n])*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)

    def keep(match):
        piece = match.group(0)
        return piece if piece.startswith('"') else " " + "\n" * piece.count("\n")

    return pattern.sub(keep, text)


def project_files(root):
    """What git tracks or would track; every file where `root` is not a checkout."""
    listing = subprocess.run(
        ["git", "-C", str(root), "ls-files", "-co", "--exclude-standard", "-z"],
        capture_output=True, check=False)
    if listing.returncode == 0:
        names = listing.stdout.decode().split("\0")
    else:
        names = [str(p.relative_to(root)) for p in root.rglob("*") if "build" != p.relative_to(root).parts[0]]
    return sorted(n for n in names if n and Path(n).suffix in SOURCES and (root / n).is_file())


def is_below(name, folder):
    return name == folder or name.startswith(folder + "/")


def rule_of(name):
    rows = [row for row in ALLOWED if is_below(name, row)]
    return max(rows, key=len) if rows else None


def may_include(source, target):
    row = rule_of(source)
    if row is None:
        return False
    if is_below(target, row) and rule_of(target) == row:
        return True
    for allowed in ALLOWED[row]:
        if allowed == "*" and not any(is_below(target, folder) for folder in NOT_PRODUCT):
            return True
        if is_below(target, allowed):
            return True
    return False


def find_cycle(edges):
    """A cycle of the graph {node: nodes} as a list whose first node is also its last, or None."""
    state = {}
    for start in sorted(edges):
        if start in state:
            continue
        path, stack = [start], [iter(sorted(edges[start]))]
        state[start] = "open"
        while stack:
            node = next(stack[-1], None)
            if node is None:
                state[path.pop()] = "done"
                stack.pop()
            elif state.get(node) == "open":
                return path[path.index(node):] + [node]
            elif node not in state:
                state[node] = "open"
                path.append(node)
                stack.append(iter(sorted(edges.get(node, ()))))
    return None


def check(root):
    """(breaches, number of includes inside the project)."""
    root = Path(root)
    files = project_files(root)
    known = set(files)
    breaches, where = [], {}
    file_edges = {name: set() for name in files}
    folder_edges = {}

    for name in files:
        if rule_of(name) is None:
            breaches.append(f"{name}: its folder has no rule; add a row to ALLOWED in tests/build/include_graph.py")
            continue
        roots = [""] + [r + "/" for top, extra in EXTRA_ROOTS.items() if is_below(name, top) for r in extra]
        text = strip_comments((root / name).read_text(encoding="utf-8"))
        for number, line in enumerate(text.split("\n"), 1):
            directive = INCLUDE.match(line)
            if directive is None:
                continue
            at = f"{name}:{number}"
            found = TARGET.match(directive.group(1))
            if found is None:
                breaches.append(f"{at}: included file is not spelled out: {line.strip()}")
                continue
            quoted, angled = found.groups()
            if angled is not None:
                if (root / angled).is_file() or angled in known:
                    breaches.append(f'{at}: <{angled}> is a file of the project: write "{angled}"')
                continue
            if quoted in GENERATED:
                continue
            target = next((r + quoted for r in roots if r + quoted in known), None)
            if target is None:
                breaches.append(f'{at}: "{quoted}" is not a file of the project (paths start at its root)')
                continue
            file_edges[name].add(target)
            source_folder, target_folder = str(Path(name).parent), str(Path(target).parent)
            if source_folder != target_folder:
                folder_edges.setdefault(source_folder, set()).add(target_folder)
                where.setdefault((source_folder, target_folder), at)
            if not may_include(name, target):
                row = rule_of(name)
                breaches.append(f"{at}: {row} must not include {target} (allowed: {', '.join(ALLOWED[row]) or 'nothing'})")

    cycle = find_cycle(file_edges)
    if cycle:
        breaches.append("files include each other: " + " -> ".join(cycle))
    cycle = find_cycle(folder_edges)
    if cycle:
        breaches.append("folders include each other: " + " -> ".join(cycle) +
                        "".join(f"; {where[edge]}" for edge in zip(cycle, cycle[1:])))
    return breaches, sum(map(len, file_edges.values()))


def main():
    if len(sys.argv) != 2 or not Path(sys.argv[1]).is_dir():
        print("usage: include_graph.py ROOT", file=sys.stderr)
        return 2
    breaches, edges = check(sys.argv[1])
    for breach in breaches:
        print(breach)
    print(f"{edges} includes, {len(breaches)} breaches")
    if edges == 0:
        print("nothing was checked: ROOT holds no sources that include each other", file=sys.stderr)
    return 1 if breaches or edges == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
