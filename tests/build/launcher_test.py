#!/usr/bin/env python3
"""launcher_test.py ROOT: ./kvproof beside programs that stand in for apt-get, nvcc, cmake and ninja."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(sys.argv.pop(1)).resolve()
REQUIRED = "13.0.88"
TOOLS = ("bash sh chmod touch env sed grep tail head cat readlink mkdir dirname uname flock tee find ln rm printf pwd tr nproc python3".split())

STAND_INS = {
    # Everything is installed.
    "dpkg-query": 'shift 2; for p in "$@"; do echo "$p installed"; done',
    "apt-get": "exit 0",
    "id": "echo 0",
    "git": "echo 0123456789ab",
    "nvcc": f"echo 'Cuda compilation tools, release 13.0, V{REQUIRED}'",
    "ptxas": "exit 0",
    "cmake": 'mkdir -p build/default/bin; touch build/default/build.ninja; echo "$*" >>"$CALLS"',
    # -n: says what is to do; else builds a command that shows its arguments and folder and exits with 3.
    "ninja": """if [ "$3" = -n ]; then test -x "$2/bin/kvproof" && echo 'ninja: no work to do.' || echo '[1/1] link'; exit 0; fi
cat >"$2/bin/kvproof" <<'END'
#!/bin/sh
printf '<%s>' "$@"; echo " in $(pwd)"; exit 3
END
chmod +x "$2/bin/kvproof\"""",
    "ctest": 'echo "ctest $*"',
}


class Launcher(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.tree, self.programs = self.folder / "tree", self.folder / "programs"
        (self.tree / "cmake").mkdir(parents=True)
        self.programs.mkdir()
        shutil.copy(ROOT / "kvproof", self.tree)
        shutil.copy(ROOT / "cmake/cuda_requirements.txt", self.tree / "cmake")
        for tool in TOOLS:
            found = shutil.which(tool)
            self.assertIsNotNone(found, tool)
            (self.programs / tool).symlink_to(found)
        for name, body in STAND_INS.items():
            self.put(name, body)

    def put(self, name, body):
        path = self.programs / name
        path.unlink(missing_ok=True)
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def launch(self, *arguments, cwd=None, **environment):
        variables = {"PATH": str(self.programs), "HOME": str(self.folder), "CUDA_HOME": "/nonexistent",
                     "CALLS": str(self.folder / "calls"), **environment}
        return subprocess.run([str(self.programs / "bash"), str(self.tree / "kvproof"), *arguments], env=variables,
                              cwd=cwd or self.tree, capture_output=True, text=True, timeout=120, check=False)

    def cmake_calls(self):
        calls = self.folder / "calls"
        return calls.read_text(encoding="utf-8").splitlines() if calls.exists() else []

    def assert_fails(self, run, *words):
        """Exit code 69, the words in the last line of stderr, nothing on stdout."""
        self.assertEqual(run.returncode, 69, run.stderr)
        self.assertEqual(run.stdout, "")
        last = run.stderr.rstrip("\n").splitlines()[-1]
        self.assertTrue(last.startswith("kvproof: "), run.stderr)
        for word in words:
            self.assertIn(word, last)

    def test_help_builds_nothing(self):
        for word in ("--help", "-h", "help"):
            run = self.launch(word)
            self.assertEqual(run.returncode, 0, run.stderr)
            self.assertIn("./kvproof", run.stdout)
        self.assertFalse((self.tree / "build").exists())

    def test_no_command_is_a_usage_error(self):
        self.assertEqual(self.launch().returncode, 2)
        self.assertEqual(self.launch("--preset").returncode, 2)

    def test_command_keeps_arguments_folder_and_exit_code(self):
        run = self.launch("verify", "--filter", "a b", cwd=self.folder)
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertEqual(run.stdout, f"<verify><--filter><a b> in {self.folder}\n")

    def test_configures_once_until_commit_or_compiler_changes(self):
        for _ in range(2):
            self.launch("list")
        self.assertEqual(len(self.cmake_calls()), 1)
        self.put("git", "echo ba9876543210")
        self.launch("list")
        self.assertEqual(len(self.cmake_calls()), 2)
        home = self.folder / "cuda"
        (home / "bin").mkdir(parents=True)
        (self.programs / "nvcc").rename(home / "bin/nvcc")
        shutil.copy(self.programs / "ptxas", home / "bin/ptxas")
        self.launch("list", CUDA_HOME=str(home))
        self.assertEqual(len(self.cmake_calls()), 3)
        self.assertIn(f"-DKVPROOF_NVCC={home}/bin/nvcc -DKVPROOF_PTXAS={home}/bin/ptxas", self.cmake_calls()[-1])

    def test_nvcc_without_ptxas_is_passed_over_and_links_are_followed(self):
        home = self.folder / "cuda"
        (home / "bin").mkdir(parents=True)
        for program in ("nvcc", "ptxas"):
            shutil.copy(self.programs / program, home / "bin" / program)
        (self.programs / "ptxas").unlink()
        self.launch("list", CUDA_HOME=str(home))
        self.assertIn(f"-DKVPROOF_NVCC={home}/bin/nvcc -DKVPROOF_PTXAS={home}/bin/ptxas", self.cmake_calls()[-1])
        (self.programs / "nvcc").unlink()
        (self.programs / "nvcc").symlink_to(home / "bin/nvcc")
        self.launch("list")
        self.assertIn(f"-DKVPROOF_NVCC={self.programs}/nvcc -DKVPROOF_PTXAS={home}/bin/ptxas", self.cmake_calls()[-1])

    def test_build_passes_cmake_variables_on(self):
        self.assertEqual(self.launch("build", "-DKVPROOF_WERROR=ON").returncode, 0)
        self.assertIn("-DKVPROOF_WERROR=ON", self.cmake_calls()[-1])

    def test_test_passes_arguments_to_ctest(self):
        run = self.launch("test", "-R", "traces")
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("-R traces", run.stdout)

    def test_apt_error_is_named(self):
        self.put("dpkg-query", "exit 1")
        self.put("apt-get", 'test "$1" = update || { echo "E: Unable to locate package g++"; exit 100; }')
        self.assert_fails(self.launch("verify"), "apt-get failed", "E: Unable to locate package g++", "cmake")

    def test_only_missing_packages_are_installed(self):
        self.put("dpkg-query", STAND_INS["dpkg-query"] + " | sed 's/^ninja-build installed/ninja-build not-installed/'")
        self.put("apt-get", 'echo "apt-get $*" >>"$CALLS"')
        self.assertEqual(self.launch("verify").returncode, 3)
        installs = [c for c in self.cmake_calls() if "install" in c and c.startswith("apt-get")]
        self.assertEqual(len(installs), 1, installs)
        self.assertTrue(installs[0].endswith(" ninja-build"), installs)

    def test_neither_root_nor_sudo(self):
        self.put("dpkg-query", "exit 1")
        self.put("id", "echo 1000")
        self.assert_fails(self.launch("verify"), "no sudo", "apt-get install", "g++")

    def test_other_nvcc_is_passed_over_and_pip_error_is_named(self):
        self.put("nvcc", "echo 'release 13.0, V13.0.48'")
        run = self.launch("verify", PIP_INDEX_URL="http://127.0.0.1:9/", PIP_RETRIES="0", PIP_FIND_LINKS="",
                          PIP_DISABLE_PIP_VERSION_CHECK="1")
        self.assert_fails(run, "pip could not install nvcc", "ERROR: ", "nvidia-cuda-nvcc",
                          "install CUDA 13.0")

    def test_cpu_preset_needs_no_nvcc(self):
        (self.programs / "nvcc").unlink()
        self.put("cmake", STAND_INS["cmake"].replace("build/default", "build/cpu"))
        run = self.launch("--preset", "cpu", "list")
        self.assertEqual(run.returncode, 3, run.stderr)
        self.assertNotIn("NVCC", self.cmake_calls()[-1])

    def test_configure_error_is_shown(self):
        self.put("cmake", "echo '-- noise'; echo 'CMake Error at x.cmake:1 (message):'; echo '  fmt is missing'; exit 1")
        run = self.launch("verify")
        self.assert_fails(run, "configuring failed", "default.log")
        self.assertIn("fmt is missing", run.stderr)
        self.assertNotIn("noise", run.stderr)

    def test_build_error_is_shown(self):
        self.put("ninja", 'test "$3" = -n && exit 0; echo "x.cpp:1: error: no"; exit 1')
        run = self.launch("verify")
        self.assert_fails(run, "the build failed", "default.log")
        self.assertIn("error: no", run.stderr)


if __name__ == "__main__":
    unittest.main()
