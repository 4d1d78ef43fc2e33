"""bench/compare.py from outside: what it flags, what it refuses. Usage: compare_test.py BENCH_FOLDER"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

script = pathlib.Path(sys.argv[1]).resolve() / "compare.py"


def row(name, us, unit="us", **more):
    return {"name": name, "run_name": name, "run_type": "iteration", "real_time": us, "time_unit": unit, **more}


def results(*rows, **context):
    return {"context": {"device": "NVIDIA H200", "driver": "CUDA 13.0", **context}, "benchmarks": list(rows)}


class compare_test(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.at = pathlib.Path(folder.name)

    def compare(self, old, new, *options):
        for name, content in (("old.json", old), ("new.json", new)):
            text = content if isinstance(content, str) else json.dumps(content)
            (self.at / name).write_text(text)
        return subprocess.run([sys.executable, "-B", script, self.at / "new.json", "--baseline", self.at / "old.json",
                               *options], capture_output=True, text=True)

    def assert_ends(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        for word in words:
            self.assertIn(word, result.stdout + result.stderr)
        self.assertNotIn("Traceback", result.stderr)

    def test_equal_results_pass(self):
        r = results(row("decode/a", 10), row("decode/b", 20))
        self.assert_ends(self.compare(r, r), 0, "x1.000", "2 compared, 0 slower")
        self.assertNotIn("warning", self.compare(r, r).stderr)

    def test_threshold(self):
        old = results(row("decode/a", 100), row("decode/b", 100), row("decode/c", 100))
        new = results(row("decode/a", 104.9), row("decode/b", 105.2), row("decode/c", 90))
        found = self.compare(old, new)
        self.assert_ends(found, 1, "1 slower", "3 compared")
        marks = {line.split()[0]: line.split()[-1] for line in found.stdout.splitlines() if line.startswith("decode")}
        self.assertEqual(marks, {"decode/a": "x1.049", "decode/b": "SLOWER", "decode/c": "faster"})
        self.assert_ends(self.compare(old, new, "--threshold", "6"), 0)
        self.assert_ends(self.compare(old, new, "--threshold", "0"), 1, "2 slower")
        self.assert_ends(self.compare(old, new, "--filter", "/[ac]$"), 0, "2 compared")
        quiet = self.compare(old, new, "--quiet")
        self.assert_ends(quiet, 1, "decode/b")
        self.assertNotIn("decode/a", quiet.stdout)

    def test_units_are_converted(self):
        self.assert_ends(self.compare(results(row("a", 1, "ms")), results(row("a", 1001, "us"))), 0, "x1.001")

    def test_median_of_repetitions(self):
        old = results(row("a", 10))
        self.assert_ends(self.compare(old, results(row("a", 10), row("a", 10.1), row("a", 90))), 0, "x1.010")
        aggregates = [{**row("a", us), "name": f"a_{kind}", "run_type": "aggregate", "aggregate_name": kind}
                      for kind, us in (("mean", 50), ("median", 10.2), ("stddev", 40), ("cv", 0.8))]
        self.assert_ends(self.compare(old, results(*aggregates)), 0, "x1.020", "1 compared")

    def test_missing_names_are_listed(self):
        found = self.compare(results(row("a", 1), row("gone", 1)), results(row("a", 1), row("added", 1)))
        self.assert_ends(found, 0, "only in the baseline: 1\n  gone", "only in the new results: 1\n  added")
        self.assert_ends(self.compare(results(row("a", 1)), results(row("b", 1))), 2, "no name in common")

    def test_a_failed_benchmark_fails(self):
        failed = {"name": "a", "run_name": "a", "run_type": "iteration", "error_occurred": True,
                  "error_message": "out differs", "real_time": 0, "time_unit": "us"}
        self.assert_ends(self.compare(results(row("a", 1)), results(failed)), 1, "FAILED: out differs")

    def test_other_circumstances_warn(self):
        new = results(row("a", 1), device="NVIDIA H100", driver="CUDA 12.8")
        self.assert_ends(self.compare(results(row("a", 1)), new), 0, "device differs: NVIDIA H200 then, NVIDIA H100 now",
                         "driver differs")
        old = results(row("a", 1), read_peak_bytes_per_second="4500000000000")
        new = results(row("a", 1), read_peak_bytes_per_second="4300000000000")
        self.assert_ends(self.compare(old, new), 0, "read peak is 0.956")

    def test_malformed_files(self):
        good = results(row("a", 1))
        emulated = results(row("a", 1), device="PTX emulator (sm_90a)")
        for bad, word in (
                ("", "no JSON"), ('{"context": {}, "benchmarks": [', "cut short"), ("[]", "format"), ("7", "format"),
                ({"rows": [], "read_bytes_per_us": 1}, "format"), ({"context": [], "benchmarks": []}, "format"),
                ({"context": {}, "benchmarks": {}}, "format"), (results(7), "no object"),
                (results({"real_time": 1, "time_unit": "us"}), "no name"), (results(row("", 1)), "no name"),
                (results(row("a", "fast")), "real_time"), (results(row("a", 0)), "real_time"),
                (results(row("a", -1)), "real_time"), (results(row("a", True)), "real_time"),
                (results(row("a", float("nan"))), "real_time"), (results(row("a", float("inf"))), "real_time"),
                (results(row("a", None)), "real_time"), (results(row("a", 1, "days")), "time_unit"),
                (results(row("a", 1, None)), "time_unit"), (results(row("a", 1, [])), "time_unit"), (emulated, "emulator")):
            for old, new in ((good, bad), (bad, good)):
                with self.subTest(bad=str(bad)[:60], side="new" if new is bad else "old"):
                    found = self.compare(old, new)
                    self.assert_ends(found, 3, word)
                    self.assertEqual(found.stderr.count("\n"), 1, found.stderr)

    def test_usage(self):
        r = results(row("a", 1))
        for options in (["--threshold", "-1"], ["--threshold", "much"], ["--threshold", "nan"], ["--filter", "("],
                        ["--nonsense"]):
            self.assert_ends(self.compare(r, r, *options), 2)
        missing = subprocess.run([sys.executable, "-B", script, self.at / "nosuch.json"], capture_output=True, text=True)
        self.assertEqual(missing.returncode, 3, missing.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
