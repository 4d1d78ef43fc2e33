"""bench_kernels from outside, without a GPU: names, filters, exit codes, and on the emulator the whole path from
verification to JSON; a mutated kernel must not be timed. Usage: command_test.py BENCH_KERNELS PTX_FOLDER"""

import json
import math
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

bench_kernels = pathlib.Path(sys.argv[1]).resolve()
ptx_folder = pathlib.Path(sys.argv[2]).resolve()
bench_folder = pathlib.Path(__file__).resolve().parents[2] / "bench"


def run(*arguments, **more):
    return subprocess.run([bench_kernels, *map(str, arguments)], capture_output=True, text=True, **more)


class command_test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = pathlib.Path(folder.name)

    def emulate(self, *arguments):
        out = self.at / "out.json"
        found = run("--device", "emulator", f"--benchmark_out={out}", *arguments)
        return found, json.loads(out.read_text())

    def test_list_needs_no_device(self):
        found = run("--benchmark_list_tests", env={**os.environ, "LD_PRELOAD": "", "KVPROOF_REQUIRE_GPU": "1"})
        self.assertEqual(found.returncode, 0, found.stderr)
        names = found.stdout.split()
        self.assertEqual(len(names), 656)
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("decode/k4v2/llama3-8b/batch:64/tokens:16384", names)

    def test_filter_sees_the_plain_name(self):
        def listed(pattern):
            found = run("--benchmark_list_tests", f"--benchmark_filter={pattern}")
            self.assertEqual(found.returncode, 0, found.stderr)
            return found.stdout.split()
        self.assertEqual(listed("^decode/k4v2/llama3-8b/batch:1/tokens:4096$"),
                         ["decode/k4v2/llama3-8b/batch:1/tokens:4096"])
        self.assertEqual(len(listed("ragged|equal")), 8)
        self.assertEqual(len(listed("-decode/")), 8 * 36)
        self.assertEqual(len(listed("demote/.*batch:(1|8)/")), 4 * 2 * 3)

    def test_emulator_run(self):
        found, data = self.emulate()
        self.assertEqual(found.returncode, 0, found.stdout + found.stderr)
        context = data["context"]
        self.assertIn("emulator", context["device"])
        self.assertIn("mean nothing", context["times"])
        self.assertRegex(context["commit"], "^([0-9a-f]{12}|unknown)$")
        hashes = [value for key, value in context.items() if key.startswith("ptx_sha256/")]
        self.assertEqual(len(hashes), 14)
        for value in hashes:
            self.assertRegex(value, "^[0-9a-f]{64}$")
        listed = run("--device", "emulator", "--benchmark_list_tests").stdout.split()
        self.assertEqual([b["name"] for b in data["benchmarks"]], listed)
        self.assertEqual(len({n.split("/")[0] for n in listed}), 5)
        for b in data["benchmarks"]:
            self.assertNotIn("error_occurred", b)
            self.assertIn("the time means nothing", b["label"])
            self.assertNotIn("share_of_read_peak", b)  # there is no peak
            for key in ("real_time", "bytes_per_second", "tokens_per_second"):
                self.assertTrue(math.isfinite(b[key]) and b[key] > 0, (b["name"], key))
            self.assertEqual(b["time_unit"], "us")

    def test_repetitions_keep_the_name(self):
        found, data = self.emulate("--benchmark_filter=quantize_pack/k4v2", "--benchmark_repetitions=3")
        self.assertEqual(found.returncode, 0, found.stderr)
        name = "quantize_pack/k4v2/tiny/batch:3/tokens:256"
        self.assertEqual([b["name"] for b in data["benchmarks"]],
                         [name] * 3 + [f"{name}_{kind}" for kind in ("mean", "median", "stddev", "cv")])
        self.assertEqual({b["run_name"] for b in data["benchmarks"]}, {name})

    def test_json_on_stdout(self):
        found = run("--device", "emulator", "--benchmark_format=json", "--benchmark_filter=demote")
        self.assertEqual([b["name"] for b in json.loads(found.stdout)["benchmarks"]],
                         ["demote/k8v4_k4v2/tiny/batch:3/tokens:256"])

    def mutate(self, module, pattern, replacement):
        text, changes = re.subn(pattern, replacement, (ptx_folder / f"{module}.ptx").read_text())
        self.assertGreater(changes, 0, f"{module}: nothing matches {pattern}")
        file = self.at / "mutant.ptx"
        file.write_text(text)
        return file

    def assert_refused(self, mutant, bad, good, words):
        found, data = self.emulate("--kernel", mutant, f"--benchmark_filter={bad}|{good}")
        self.assertEqual(found.returncode, 1, found.stdout + found.stderr)
        self.assertIn("mutant.ptx, sha256", data["context"]["kernel"])
        self.assertTrue(any(b["name"].startswith(bad) for b in data["benchmarks"]))
        for b in data["benchmarks"]:
            if b["name"].startswith(good):
                self.assertNotIn("error_occurred", b)
            else:
                self.assertTrue(b["error_occurred"], b["name"])
                self.assertRegex(b["error_message"], words)

    def test_a_wrong_decode_kernel_is_not_timed(self):
        self.assert_refused(self.mutate("decode_k8v4_d64", r"cvt\.rn\.f16x2\.f32", "cvt.rz.f16x2.f32"),
                            "decode/k8v4/", "decode/k4v2/", "kv_head [0-9]+ of the batch, out.*expected 0x")

    def test_a_wrong_quantizer_is_not_timed(self):
        self.assert_refused(self.mutate("quantize_k4v2", r"cvt\.rn\.f16x2\.f32", "cvt.rz.f16x2.f32"),
                            "quantize_pack/k4v2/", "quantize_pack/k8v4/",
                            "kv_head [0-9]+ of the batch, page [0-9]+, byte [0-9]+: expected 0x")

    def test_usage(self):
        for arguments, word in (
                (["--nonsense"], "--nonsense"), (["--device=tpu"], "tpu"),
                (["--benchmark_filter=nosuch"], "finds no benchmark"), (["--benchmark_filter=("], "--benchmark_filter"),
                (["--benchmark_format=csv"], "console or json"), (["--benchmark_nonsense"], "--benchmark_nonsense")):
            found = run(*arguments)
            self.assertEqual(found.returncode, 2, (arguments, found.stdout, found.stderr))
            self.assertIn(word, found.stderr)
        found = run("--device", "emulator", "--kernel", self.at / "nosuch.ptx")
        self.assertEqual(found.returncode, 3, found.stderr)
        self.assertEqual(run("--help").returncode, 0)
        self.assertIn("--device", run("--help").stdout)

    def test_the_one_command(self):
        script = bench_folder / "run"
        environment = {**os.environ, "BENCH_KERNELS": str(bench_kernels), "PYTHON": sys.executable}

        def bench_run(*arguments):
            return subprocess.run([script, *map(str, arguments)], capture_output=True, text=True, env=environment)
        emulated = bench_run(self.at / "out", "--device", "emulator", "--benchmark_filter=demote")
        self.assertEqual(emulated.returncode, 3, emulated.stderr)  # compare.py takes no times of the emulator
        self.assertEqual(len(json.loads((self.at / "out/kernels.json").read_text())["benchmarks"]), 1)
        self.assertIn("emulator, whose times mean nothing", emulated.stderr)
        failed = bench_run(self.at / "out", "--device", "emulator", "--benchmark_filter=nosuch")
        self.assertEqual(failed.returncode, 2, failed.stderr)
        self.assertEqual(bench_run().returncode, 2)
        environment["BENCH_KERNELS"] = str(self.at / "nosuch")
        self.assertEqual(bench_run(self.at).returncode, 2)

    def test_runs_beside_its_library_alone(self):
        library = next(bench_kernels.parent.glob("libbenchmark.so*"))
        for file in (bench_kernels, library):
            (self.at / file.name).write_bytes(file.read_bytes())
        moved = self.at / bench_kernels.name
        moved.chmod(0o755)
        linked = subprocess.run(["ldd", moved], capture_output=True, text=True, check=True).stdout
        self.assertIn(f"{self.at}/{library.name}", linked)
        text = bench_kernels.read_bytes()
        self.assertNotIn(str(bench_kernels.parent).encode() + b"/memory_kernels", text)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
