"""The kvproof command from outside: JSONL that adds up, reruns that repeat, suites, exit codes,
evidence. Usage: command_test.py KVPROOF PTX_FOLDER"""

import json
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

kvproof = pathlib.Path(sys.argv[1]).resolve()
ptx_folder = pathlib.Path(sys.argv[2]).resolve()


def run(*arguments, cwd=None):
    return subprocess.run([kvproof, *map(str, arguments)], cwd=cwd, capture_output=True, text=True)


def entry_of(case):
    """Kernels of case decode/FORMAT/dD_gG_... or quantize/FORMAT/dD_..."""
    kind, name, rest = case.split("/")
    parts = rest.split("_")
    return f"{kind}_{name}_{parts[0]}_" + (f"{parts[1]}_kernel" if kind == "decode" else "kernel")


class command_test(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.at = pathlib.Path(self.folder.name)

    def verify(self, *arguments):
        return run("verify", "--device", "emulator", *arguments, cwd=self.at)

    def assert_fails(self, result, code, *words):
        self.assertEqual(result.returncode, code, result.stdout + result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def read_jsonl(self, name):
        lines = (self.at / name).read_text().splitlines()
        parsed = [json.loads(line) for line in lines]  # each line parses
        self.assertEqual(parsed[0]["schema"], "kvproof-verdicts")
        self.assertEqual(parsed[0]["version"], 1)
        self.assertEqual(list(parsed[-1]), ["total"])
        cases, total = parsed[1:-1], parsed[-1]["total"]
        self.assertEqual(total["cases"], len(cases))
        for key in ("compared", "outputs", "mismatches"):
            self.assertEqual(total[key], sum(c[key] for c in cases), key)
            for case in cases:
                self.assertEqual(case[key], sum(s[key] for s in case["stages"]), case["case"])
        for key, verdict in (("passed", "PASSED"), ("failed", "FAILED"), ("vacuous", "VACUOUS"),
                             ("faults", "FAULT"), ("skipped", "SKIPPED")):
            self.assertEqual(total[key], sum(c["verdict"] == verdict for c in cases), key)
        return parsed[0], cases, total

    def assert_reruns_repeat(self, cases):
        for case in cases:
            words = shlex.split(case["rerun"])
            self.assertEqual(words[:3], ["kvproof", "repro", case["case"]])
            again = run(*words[1:], cwd=self.at)
            lines = again.stdout.splitlines()
            self.assertEqual(
                lines[0].split("  | ")[0],
                f"{case['verdict']:<7} {case['case']}  {case['compared']} elements, "
                f"{case['mismatches']} mismatches")
            if case["detail"]:
                self.assertEqual(lines[1].strip(), case["detail"])
            self.assertIn(case["rerun"], again.stdout)
            self.assertIn("cases       1: ", again.stdout)
            self.assertEqual(sum(" mismatches" in line for line in lines[1:]) , len(case["stages"]))
            self.assertEqual(again.returncode, 0 if case["verdict"] == "PASSED" else 1)

    def test_jsonl_adds_up_and_reruns_repeat(self):
        (self.at / "few.txt").write_text(
            "quantize/k4v2/d64_huge_pieces23\ndecode/int2_g16/d64_g3_drift  # two\n"
            "*-k8v4/*/layer09\n")
        result = self.verify("--suite", "few.txt", "--seed", 5, "--steps", 2, "--jsonl", "v.jsonl",
                             "--junit", "v.xml")
        self.assertEqual(result.returncode, 0, result.stderr)
        header, cases, total = self.read_jsonl("v.jsonl")
        self.assertEqual(header["seed"], 5)
        self.assertEqual([c["case"] for c in cases],
                         ["decode/int2_g16/d64_g3_drift", "quantize/k4v2/d64_huge_pieces23",
                          "diffkv-k8v4/smollm2-135m-instruct/layer09"])
        self.assertEqual(total["passed"], 3)
        self.assertIn(f"compared    {total['compared']} elements", result.stdout)
        self.assertIn("--steps 2", cases[2]["rerun"])
        self.assertNotIn("--steps", cases[0]["rerun"])
        for case in cases:
            self.assertGreater(case["outputs"], 0)
            self.assertGreater(case["compared"], case["outputs"])
        self.assert_reruns_repeat(cases)
        self.assertEqual((self.at / "v.xml").read_text().count("<testcase "), 3)

    def test_a_failing_case_repeats_with_the_same_difference(self):
        ptx = (ptx_folder / "decode_k4v2_d64.ptx").read_text()
        self.assertIn("mul.rn.f32", ptx)
        (self.at / "sums for products.ptx").write_text(ptx.replace("mul.rn.f32", "add.rn.f32"))
        result = self.verify("--suite", "smoke", "--filter", "decode/k4v2/d64_g3_[!x]*",
                             "--kernel", "sums for products.ptx")
        self.assert_fails(result, 2, "nothing selected")  # no brackets in globs
        result = self.verify("--suite", "smoke", "--filter", "decode/k4v2/d64_g3_*t*", "--jsonl",
                             "v.jsonl", "--kernel", "sums for products.ptx")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        _, cases, total = self.read_jsonl("v.jsonl")
        self.assertEqual(total["failed"], total["cases"])
        for case in cases:
            self.assertRegex(case["detail"], r"decode/decode: out\[sequence=\d+, q_head=\d+, channel=\d+\]"
                             r": expected 0x[0-9a-f]{8} \(.*\), got 0x[0-9a-f]{8} \(")
        self.assert_reruns_repeat(cases[:2])

    def test_a_synthetic_case_opens_no_trace(self):
        case = "quantize/k8v4/d64_normal_pieces144"
        result = run("repro", case, "--device", "emulator", "--trace", "/nonexistent.h5")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run("repro", "minikv-2bit/smollm2-135m-instruct/layer00", "--trace",
                     "/nonexistent.h5")
        self.assert_fails(result, 3, "/nonexistent.h5")
        self.assert_fails(run("repro", "decode/nosuch", "--trace", "/nonexistent.h5"), 2,
                          "decode/nosuch")

    def test_verbose_lists_stages_and_quiet_does_not(self):
        one = ("--suite", "smoke", "--filter", "decode/k8v4/d64_g3_tiny")
        verbose = self.verify(*one, "--verbose").stdout
        self.assertRegex(verbose, r"\n  decode/quantize +\d+ elements, 0 mismatches\n"
                         r"  decode/decode +\d+ elements, 0 mismatches\n")
        self.assertNotIn("decode/quantize", self.verify(*one).stdout)
        self.assertTrue(self.verify(*one, "--quiet").stdout.startswith("device "))
        self.assertEqual(self.verify(*one, "--quiet", "--verbose").returncode, 2)

    def test_usage_errors(self):
        self.assert_fails(self.verify("--filter", "nosuch"), 2, "nosuch")
        self.assert_fails(self.verify("--suite", "nosuch"), 2, "nosuch", "nightly")
        self.assert_fails(self.verify("--variant", "nosuch"), 2, "minikv-2bit")
        for steps in ("x", "-1", "1.5", "all of them"):
            self.assert_fails(self.verify(f"--steps={steps}"), 2, steps)
        (self.at / "bad.txt").write_text("decode/*\n# fine\nnosuch/*\n")
        self.assert_fails(self.verify("--suite", "bad.txt"), 2, "bad.txt:3", "nosuch/*")
        self.assert_fails(
            self.verify("--suite", "smoke", "--filter", "decode/k8v4/d64_g3_tiny", "--jsonl",
                        "no/such/folder.jsonl"), 2, "no/such/folder.jsonl")

    def test_bad_inputs(self):
        trace = kvproof.parents[3] / "traces/data/smollm2-135m-instruct.h5"
        if not trace.exists():
            self.skipTest("the build folder is not inside the sources")
        data = trace.read_bytes()
        (self.at / "cut.h5").write_bytes(data[: len(data) * 6 // 10])
        self.assert_fails(self.verify("--trace", "cut.h5"), 3, "cut.h5")
        self.assert_fails(self.verify("--steps", "100000"), 3, "128", "--steps")
        (self.at / "other.ptx").write_text(".visible .entry nothing_of_ours()\n{\n}\n")
        self.assert_fails(self.verify("--kernel", "other.ptx"), 3, "other.ptx")
        self.assert_fails(self.verify("--kernel", "absent.ptx"), 3, "absent.ptx")

    def test_a_trace_without_tokens_is_vacuous(self):
        self.assertEqual(run("trace", "synth", "--model", "smollm2-135m", "--tokens", "0+0",
                             "--layers", 1, "--out", self.at / "empty.h5").returncode, 0)
        result = self.verify("--trace", "empty.h5", "--steps", "all", "--jsonl", "v.jsonl")
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        _, cases, total = self.read_jsonl("v.jsonl")
        self.assertEqual((total["vacuous"], total["cases"], total["outputs"]), (4, 4, 0))
        self.assert_reruns_repeat(cases[:1])
        self.assertIn("0 passed, 0 failed, 4 vacuous", result.stdout)

    def test_all_steps_are_those_of_the_trace(self):
        run("trace", "synth", "--model", "smollm2-135m", "--tokens", "20+7", "--layers", 1, "--out",
            self.at / "t.h5")
        result = self.verify("--trace", "t.h5", "--steps", "all")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("7 decode steps", result.stdout)
        self.assertIn("--trace t.h5 --steps all", result.stdout)

    def test_evidence_of_other_kernels_stays(self):
        first, second = "quantize/k8v4/d64_normal_pieces144", "decode/k4v2/d64_g3_tiny"

        def write(case, *more):
            return self.verify("--suite", "smoke", "--filter", case, "--evidence", "e.jsonl", *more)

        self.assertEqual(write(first, "--commit", "one").returncode, 0)
        before = (self.at / "e.jsonl").read_text().splitlines()
        self.assertEqual(write(second, "--commit", "two").returncode, 0)
        after = (self.at / "e.jsonl").read_text().splitlines()
        self.assertEqual(json.loads(after[0])["schema"], "kvproof-evidence")
        self.assertEqual(after[: len(before)], before)
        by_kernel = {json.loads(line)["kernel"]: json.loads(line) for line in after[1:]}
        self.assertEqual(by_kernel[entry_of(first)]["commit"], "one")
        self.assertEqual(by_kernel[entry_of(second)]["commit"], "two")
        self.assertEqual(write(first, "--commit", "three").returncode, 0)
        again = [json.loads(line) for line in (self.at / "e.jsonl").read_text().splitlines()[1:]]
        self.assertEqual(len(again), len(by_kernel))
        self.assertEqual({e["commit"] for e in again if e["kernel"] == entry_of(first)}, {"three"})
        self.assertEqual(sorted(p.name for p in self.at.iterdir()), ["e.jsonl"])

        (self.at / "e.jsonl").write_text("{\n")
        self.assert_fails(write(first), 3, "e.jsonl:1")
        self.assertEqual((self.at / "e.jsonl").read_text(), "{\n")
        self.assert_fails(write(first, "--kernel", "any.ptx"), 2, "--evidence")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
