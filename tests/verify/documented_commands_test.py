"""Every command that README.md and --help show runs, and gives the output shown beside it.

README.md: lines that begin with `$ ` in any code block, with the output below them, and the lines of
```sh blocks. --help: the lines below "Example". Times and hashes are masked, nothing else.
Usage: documented_commands_test.py KVPROOF SOURCE_FOLDER BUILD_FOLDER [readme|help]"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

kvproof, sources, build = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
what = sys.argv[4]

# Commands that this test does not run, and why.
not_run = {
    "./kvproof verify --device cuda": "needs a GPU",
    "./kvproof verify --suite smoke": "minutes; verify/decode_* and verify/quantize_* run it",
    "./kvproof verify --suite nightly": "many minutes",
}


def masked(text):
    text = re.sub(r"\b[0-9a-f]{12,64}\b", "<hash>", text)
    return re.sub(r"\b\d+(\.\d+)? ?(us|ms|s|min)\b", "<time>", text).rstrip("\n")


def readme_commands(text):
    """(command, shown output or None)"""
    commands = []
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.M | re.S):
        lines = body.splitlines()
        if language == "sh":
            for line in lines:
                command = re.sub(r"(^|\s+)# .*$", "", line).strip()
                if command:
                    commands.append((command, None))
            continue
        i = 0
        while i < len(lines):
            if not lines[i].startswith("$ "):
                i += 1
                continue
            command, output = lines[i][2:], []
            i += 1
            while i < len(lines) and not lines[i].startswith("$ "):
                output.append(lines[i])
                i += 1
            commands.append((command, "\n".join(output) if output else None))
    return commands


def help_commands():
    commands = []
    for sub in ([], ["verify"], ["repro"], ["list"], ["trace"], ["trace", "synth"],
                ["trace", "info"]):
        text = subprocess.run([kvproof, *sub, "--help"], capture_output=True, text=True,
                              check=True).stdout
        _, _, examples = text.partition("Example")
        commands += [(line.strip(), None) for line in examples.splitlines()
                     if line.startswith("  kvproof ")]
    return list(dict.fromkeys(commands))  # subcommands repeat the footer of their parent


def main():
    if what == "readme":
        commands = readme_commands((sources / "README.md").read_text())
        least = 8
        stale = set(not_run) - {command for command, _ in commands}
        if stale:
            print(f"README.md no longer shows what this test does not run: {sorted(stale)}")
            return 1
    else:
        commands = help_commands()
        least = 6
    if len(commands) < least:
        print(f"only {len(commands)} commands found, at least {least} expected: {commands}")
        return 1
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        here = pathlib.Path(folder)
        (here / "kvproof").symlink_to(kvproof)
        (here / "build").mkdir()
        (here / "build/default").symlink_to(build)
        for name in ("traces", "verify", "README.md"):
            (here / name).symlink_to(sources / name)
        environment = {"PATH": f"{here}:/usr/bin:/bin", "HOME": folder, "LC_ALL": "C.UTF-8"}
        for command, shown in commands:
            if command in not_run:
                print(f"not run  {command}  ({not_run[command]})")
                continue
            result = subprocess.run(["bash", "-c", command], cwd=here, env=environment,
                                    capture_output=True, text=True)
            fails = shown is not None and re.search(r"^(FAILED|VACUOUS) ", shown, re.M)
            wanted = 1 if fails else 0
            problem = ""
            if result.returncode != wanted:
                problem = f"exit code {result.returncode}, not {wanted}\n{result.stdout}{result.stderr}"
            elif shown is not None and masked(result.stdout) != masked(shown):
                problem = "\n".join(difflib.unified_diff(
                    masked(shown).splitlines(), masked(result.stdout).splitlines(), "shown", "real",
                    lineterm=""))
            print(f"{'FAILED ' if problem else 'passed '}  {command}")
            if problem:
                print(problem)
                failures += 1
    return 1 if failures else 0


sys.exit(main())
