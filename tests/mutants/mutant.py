"""What a mutant is: an edit of one kernel's PTX, the case it runs on and the verdict it must get.

    @mutant(DECODE, on=[k8v4(64, 3)], case="boundaries", expect=failed("out"))
    def name_of_the_mutant(k):
        \"\"\"The bug in a sentence.\"\"\"
        k.op(...).edit(...)
"""
import re
from dataclasses import dataclass

ALL = []  # in the order of definition


@dataclass(frozen=True)
class Target:
    """One kernel; ratio is 0 for quantize, format empty and head_dim 0 for score_update, "tiers" for decode_tiers."""
    format: str
    head_dim: int
    ratio: int

    def entry(self, role):
        role = role.removesuffix("_tiers")
        if not self.format:
            return f"{role}_g{self.ratio}_kernel"
        suffix = f"_g{self.ratio}" if self.ratio else ""
        return f"{role}_{self.format}_d{self.head_dim}{suffix}_kernel"

    def case(self, role, rest):
        """Full id of a case of a suite; one with a '/' is complete already."""
        if "/" in rest:
            return rest
        role = role.removesuffix("_tiers")
        if not self.format:
            return f"{role}/g{self.ratio}_{rest}"
        suffix = f"_g{self.ratio}" if self.ratio else ""
        return f"{role}/{self.format}/d{self.head_dim}{suffix}_{rest}"


def k8v4(head_dim, ratio=0):
    return Target("k8v4", head_dim, ratio)


def k4v2(head_dim, ratio=0):
    return Target("k4v2", head_dim, ratio)


def int2(head_dim, ratio=0):
    return Target("int2_g16", head_dim, ratio)


def tiers(head_dim, ratio):
    return Target("tiers", head_dim, ratio)


def any_format(ratio):
    return Target("", 0, ratio)


@dataclass(frozen=True)
class Expectation:
    verdict: str
    exit_code: int
    detail: str  # regular expression: the tensor of the first difference, or the words of the fault

    def met_by(self, verdict, exit_code, detail):
        return (verdict, exit_code) == (self.verdict, self.exit_code) and re.search(self.detail, detail) is not None

    def __str__(self):
        return f"{self.verdict}, exit code {self.exit_code}, detail with /{self.detail}/"


def failed(tensor, also=""):
    """FAILED, first difference in `tensor`, the report also matching `also`."""
    return Expectation("FAILED", 1, rf": {tensor}\[.*{also}")


def fault(words):
    """The device refuses: out of bounds, deadlock."""
    return Expectation("FAULT", 4, words)


@dataclass(frozen=True)
class Mutant:
    name: str
    bug: str
    role: str
    targets: tuple
    case: str
    expect: Expectation
    edit: object


def mutant(role, on, case, expect):
    def define(edit):
        ALL.append(Mutant(edit.__name__, " ".join(edit.__doc__.split()), role, tuple(on), case, expect, edit))
        return edit
    return define


# Edits that several mutants use.

def off_by_one(comparisons):
    """a < b becomes a <= b, and so on: the boundary itself changes sides."""
    other = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt"}
    comparisons.edit(r"setp\.(lt|le|gt|ge)", lambda m: f"setp.{other[m[1]]}")


def move_address(accesses, bytes_further):
    accesses.edit(r"\[([%\w]+)(?:\+(-?\d+))?\]", lambda m: f"[{m[1]}+{int(m[2] or 0) + bytes_further}]")


def exchange_fields(k, a, b):
    """The kernel uses parameter b where it should use a."""
    move_address(k.param(a), k.fields[b] - k.fields[a])
