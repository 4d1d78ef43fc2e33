"""Runs test_record.py with the first Python that has numpy and h5py: this one or one of the arguments.

Exit code 77 (skipped) and a reason if none has them.
"""

import subprocess
import sys
from pathlib import Path


def has_packages(python: str) -> bool:
    command = [python, "-c", "import numpy, h5py"]
    try:
        return subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode == 0
    except OSError:
        return False


def main() -> int:
    for python in (sys.executable, *sys.argv[1:]):
        if has_packages(python):
            print(f"with {python}", flush=True)
            test = Path(__file__).with_name("test_record.py")
            return subprocess.run([python, str(test)], check=False).returncode
    print(
        "SKIPPED: no Python with numpy and h5py; Debian has them in python3-numpy, python3-h5py",
        file=sys.stderr,
    )
    return 77


if __name__ == "__main__":
    sys.exit(main())
