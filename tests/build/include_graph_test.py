#!/usr/bin/env python3
"""include_graph.py on a fabricated tree: the tree passes, and each mutant of it fails for its own reason."""

import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import include_graph

TREE = {
    "reference/spec/facts.hpp": "#pragma once\n",
    "reference/numerics/half.hpp": '#include <cstdint>\n#include "reference/spec/facts.hpp"\n',
    "reference/formats/codec.hpp": '#include "reference/numerics/half.hpp"\n',
    "traces/half.hpp": '#include "reference/spec/facts.hpp"\n',
    "gpu/device/device.hpp": "#pragma once\n",
    "gpu/device/emulator/tensor.cpp": '#include "gpu/device/device.hpp"\n',
    "gpu/kernels/decode.cu": '#include "reference/spec/facts.hpp"\n#include "kernel_modules.inc"\n',
    "gpu/launch/launch.hpp": '#include "gpu/device/device.hpp"\n',
    "verify/main.cpp": '#include "gpu/launch/launch.hpp"\n#include "reference/formats/codec.hpp"\n',
    "tests/traces/fixture.hpp": '#include "traces/half.hpp"\n',
    "tests/traces/half_test.cpp": '#include "traces/fixture.hpp"\n',
    "bench/bench.cpp": '#include "gpu/launch/launch.hpp"\n',
}

# name: (file, text added at its end, part of the message)
MUTANTS = {
    "kernels use the reference's arithmetic":
        ("gpu/kernels/decode.cu", '#include "reference/numerics/half.hpp"', "gpu must not include reference/numerics/half.hpp"),
    "emulator uses the reference's tensor core":
        ("gpu/device/emulator/tensor.cpp", '#include "reference/numerics/half.hpp"', "gpu/device/emulator must not include"),
    "emulator uses the kernels' code":
        ("gpu/device/emulator/tensor.cpp", '#include "gpu/launch/launch.hpp"', "gpu/device/emulator must not include"),
    "launchers know the emulator":
        ("gpu/launch/launch.hpp", '#include "gpu/device/emulator/tensor.cpp"', "gpu must not include gpu/device/emulator"),
    "reference uses the kernels":
        ("reference/formats/codec.hpp", '#include "gpu/device/device.hpp"', "reference must not include gpu/device/device.hpp"),
    "facts hold arithmetic":
        ("reference/spec/facts.hpp", '#include "reference/numerics/half.hpp"', "reference/spec must not include"),
    "traces use the reference's arithmetic":
        ("traces/half.hpp", '#include "reference/numerics/half.hpp"', "traces must not include"),
    "product uses a test":
        ("verify/main.cpp", '#include "tests/traces/fixture.hpp"', "verify must not include tests/"),
    "product uses a benchmark":
        ("verify/main.cpp", '#include "bench/bench.cpp"', "verify must not include bench/"),
    "folders in a circle":
        ("reference/numerics/half.hpp", '#include "reference/formats/codec.hpp"', "folders include each other"),
    "files in a circle within a folder":
        ("gpu/device/device.hpp", '#include "gpu/device/device.hpp"', "files include each other"),
    "angle brackets":
        ("gpu/kernels/decode.cu", "#include <reference/numerics/half.hpp>", "is a file of the project"),
    "spaces in the directive":
        ("gpu/kernels/decode.cu", '  #  include   "reference/numerics/half.hpp"  // why not', "gpu must not include"),
    "comment before the directive":
        ("gpu/kernels/decode.cu", '/* a */ #include "reference/numerics/half.hpp"', "gpu must not include"),
    "relative path":
        ("gpu/kernels/decode.cu", '#include "../../reference/numerics/half.hpp"', "is not a file of the project"),
    "tests' folder as root outside tests":
        ("verify/main.cpp", '#include "traces/fixture.hpp"', "is not a file of the project"),
    "macro":
        ("gpu/kernels/decode.cu", "#define F <cmath>\n#include F", "is not spelled out"),
    "folder without a rule":
        ("helpers/shared.hpp", "#pragma once", "its folder has no rule"),
}

HARMLESS = {
    "commented out": ("gpu/kernels/decode.cu", '// #include "reference/numerics/half.hpp"'),
    "in a block comment": ("gpu/kernels/decode.cu", '/*\n#include "reference/numerics/half.hpp"\n*/'),
    "in a string": ("gpu/kernels/decode.cu", 'const char* s = "#include <reference/numerics/half.hpp>";'),
    "system header": ("gpu/kernels/decode.cu", "#include <cuda_fp16.h>"),
}


def breaches_of(tree):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in tree.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return include_graph.check(folder)


def with_line(name, line):
    tree = dict(TREE)
    tree[name] = tree.get(name, "") + line + "\n"
    return tree


class IncludeGraph(unittest.TestCase):
    def test_good_tree_passes_and_is_read(self):
        self.assertEqual(breaches_of(TREE), ([], 11))

    def test_mutants_fail(self):
        for name, (file, line, message) in MUTANTS.items():
            with self.subTest(name):
                breaches, _ = breaches_of(with_line(file, line))
                self.assertTrue(any(message in b for b in breaches), f"expected '{message}' in {breaches}")

    def test_harmless_lines_pass(self):
        for name, (file, line) in HARMLESS.items():
            with self.subTest(name):
                self.assertEqual(breaches_of(with_line(file, line))[0], [])


if __name__ == "__main__":
    unittest.main()
