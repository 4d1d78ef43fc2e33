#!/usr/bin/env python3
"""find_nvcc_test.py ROOT CMAKE: cmake/kvproof_cuda.cmake beside compilers that only tell their version."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

CMAKE = sys.argv.pop(2)
ROOT = Path(sys.argv.pop(1)).resolve()

PROJECT = """cmake_minimum_required(VERSION 3.25)
project(find_nvcc LANGUAGES NONE)
list(APPEND CMAKE_MODULE_PATH ${PROJECT_SOURCE_DIR}/cmake)
include(kvproof_cuda)
message(STATUS "nvcc=${KVPROOF_NVCC} ptxas=${KVPROOF_PTXAS}.")
"""


class FindNvcc(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp()).resolve()
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "tree/cmake").mkdir(parents=True)
        (self.folder / "tree/CMakeLists.txt").write_text(PROJECT, encoding="utf-8")
        for name in ("kvproof_cuda.cmake", "cuda_requirements.txt"):
            shutil.copy(ROOT / "cmake" / name, self.folder / "tree/cmake")

    def toolkit(self, name, **versions):
        """A folder whose bin/ holds the named programs, each telling its version."""
        home = self.folder / name
        (home / "bin").mkdir(parents=True)
        for program, version in versions.items():
            path = home / "bin" / program
            path.write_text(f"#!/bin/sh\necho 'release {version[:4]}, V{version}'\n", encoding="utf-8")
            path.chmod(0o755)
        return home

    def configure(self, *arguments, **environment):
        """(exit status, output as one line)"""
        variables = {k: v for k, v in os.environ.items() if k not in ("CUDACXX", "CUDA_HOME")} | environment
        run = subprocess.run([CMAKE, "-S", self.folder / "tree", "-B", self.folder / "build", *arguments], env=variables,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        return run.returncode, re.sub(r"\s+", " ", run.stdout)

    def assert_found(self, home, result):
        self.assertEqual(result[0], 0, result[1])
        self.assertIn(f"nvcc={home}/bin/nvcc ptxas={home}/bin/ptxas.", result[1])

    def test_cuda_home(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        result = self.configure(CUDA_HOME=str(home))
        self.assert_found(home, result)
        self.assertNotIn("Warning", result[1])

    def test_cudacxx_is_a_file_and_comes_before_cuda_home(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        other = self.toolkit("other", nvcc="13.0.88", ptxas="13.0.88")
        self.assert_found(home, self.configure(CUDACXX=f"{home}/bin/nvcc", CUDA_HOME=str(other)))

    def test_cudacxx_is_no_file(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        status, output = self.configure(CUDACXX=f"{home}/bin")
        self.assertNotEqual(status, 0)
        self.assertIn(f"CUDACXX={home}/bin is not an executable file; install CUDA 13.0", output)

    def test_variable_comes_before_all(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        other = self.toolkit("other", nvcc="13.0.88", ptxas="13.0.88")
        self.assert_found(home, self.configure(f"-DKVPROOF_NVCC={home}/bin/nvcc", CUDACXX=f"{other}/bin/nvcc"))

    def test_ptxas_follows_a_link_to_nvcc(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        (self.folder / "links").mkdir()
        (self.folder / "links/nvcc").symlink_to(home / "bin/nvcc")
        status, output = self.configure(CUDACXX=f"{self.folder}/links/nvcc")
        self.assertEqual(status, 0, output)
        self.assertIn(f"ptxas={home}/bin/ptxas.", output)

    def test_other_releases_are_refused_and_forgotten(self):
        for version in ("12.4.131", "13.1.80"):
            with self.subTest(version):
                old = self.toolkit(version, nvcc=version, ptxas=version)
                status, output = self.configure(CUDA_HOME=str(old))
                self.assertNotEqual(status, 0)
                self.assertIn(f"{old}/bin/nvcc is version '{version}', not 13.0; install CUDA 13.0", output)
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.88")
        self.assert_found(home, self.configure(CUDA_HOME=str(home)))

    def test_other_patch_warns(self):
        home = self.toolkit("cuda", nvcc="13.0.48", ptxas="13.0.48")
        status, output = self.configure(CUDA_HOME=str(home))
        self.assertEqual(status, 0, output)
        self.assertIn("Warning", output)
        self.assertIn("evidence was recorded with 13.0.88", output)

    def test_ptxas_is_missing(self):
        home = self.toolkit("cuda", nvcc="13.0.88")
        status, output = self.configure(CUDA_HOME=str(home))
        self.assertNotEqual(status, 0)
        self.assertIn(f"no ptxas beside {home}/bin/nvcc", output)

    def test_ptxas_of_another_release_is_refused(self):
        home = self.toolkit("cuda", nvcc="13.0.88", ptxas="13.0.48")
        status, output = self.configure(CUDA_HOME=str(home))
        self.assertNotEqual(status, 0)
        self.assertIn("ptxas is version '13.0.48', nvcc is 13.0.88", output)

    def test_program_that_tells_no_version(self):
        home = self.toolkit("cuda", nvcc="x", ptxas="x")
        status, output = self.configure(CUDA_HOME=str(home))
        self.assertNotEqual(status, 0)
        self.assertIn("is version '', not 13.0", output)


if __name__ == "__main__":
    unittest.main()
