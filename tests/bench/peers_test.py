"""bench/peers.py without PyTorch: names, byte counts, and how it says that it cannot run.
Usage: peers_test.py BENCH_FOLDER"""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

bench = pathlib.Path(sys.argv[1]).resolve()
sys.path.insert(0, str(bench))
import peers  # noqa: E402


def run(*arguments, **more):
    return subprocess.run([sys.executable, "-B", bench / "peers.py", *arguments], capture_output=True, text=True, **more)


class peers_test(unittest.TestCase):
    def test_names(self):
        listed = run("--list")
        self.assertEqual(listed.returncode, 0, listed.stderr)
        names = listed.stdout.split()
        self.assertEqual(len(names), 4 * 3 * 3 * 3)
        self.assertEqual(len(set(names)), len(names))
        self.assertIn("sdpa/cudnn/llama3-8b/batch:64/tokens:16384", names)
        filtered = run("--list", "--filter", "flash/.*batch:1/").stdout.split()
        self.assertEqual(len(filtered), 4 * 3)

    def test_models_are_those_of_the_kernels(self):
        header = (bench / "bench_case.hpp").read_text()
        table = header[header.index("models = {{"):header.index("}};")]
        found = {name: tuple(map(int, numbers.split(",")))
                 for name, numbers in re.findall(r'\{"([^"]+)", ([0-9, ]+)\}', table)}
        self.assertEqual(found, peers.MODELS)

    def test_bytes_and_rates(self):
        shape = ("llama3-8b", 2, 4096)
        self.assertEqual(peers.moved_bytes(shape), 2 * (2 * 8 * 4096 * 128 * 2 + 2 * 32 * 128 * 2))
        entry = peers.row("n", [20.0, 10.0, 90.0], shape, 1e12, "gqa:folded")
        self.assertEqual(entry["real_time"], 20.0)
        for key, expected in (("bytes_per_second", peers.moved_bytes(shape) / 20e-6),
                              ("share_of_read_peak", peers.moved_bytes(shape) / 20e-6 / 1e12),
                              ("tokens_per_second", 2 * 4096 / 20e-6)):
            self.assertAlmostEqual(entry[key] / expected, 1, places=12, msg=key)
        self.assertTrue(peers.row("n", error="no kernel")["error_occurred"])

    def test_without_torch_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            hidden = pathlib.Path(folder) / "torch.py"
            hidden.write_text("raise ImportError('hidden for the test')\n")
            found = run("--filter", "cudnn", env={"PYTHONPATH": folder})
        self.assertEqual(found.returncode, 69, found.stderr)
        self.assertEqual(found.stdout, "")
        self.assertEqual(found.stderr.count("\n"), 1, found.stderr)
        self.assertIn("no PyTorch here (hidden for the test)", found.stderr)

    def test_without_a_gpu_it_says_so(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "torch.py").write_text(
                "class cuda:\n    @staticmethod\n    def is_available():\n        return False\n")
            found = run(env={"PYTHONPATH": folder})
        self.assertEqual(found.returncode, 69, found.stderr)
        self.assertIn("PyTorch finds no GPU", found.stderr)

    def test_usage(self):
        for arguments in (["--filter", "("], ["--filter", "nosuch"], ["--nonsense"]):
            self.assertEqual(run(*arguments).returncode, 2, arguments)

    def test_a_missing_peak_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "kernels.json"
            for content in ("", "[]", "{}", json.dumps({"context": {}})):
                file.write_text(content)
                with self.assertRaisesRegex(peers.BadPeak, "read_peak_bytes_per_second"):
                    peers.read_peak(file)
            file.write_text(json.dumps({"context": {"read_peak_bytes_per_second": "4500000000000"}}))
            self.assertEqual(peers.read_peak(file), 4.5e12)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
