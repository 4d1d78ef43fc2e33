"""One PTX entry as a list of instructions that can be selected by what they do, and edited.

A selection is narrowed step by step: by opcode, by text, by what it reads and what reads it. An empty
selection raises AnchorLost with the whole chain of steps, so that an edit never silently does nothing.
Registers are followed without control flow: nvcc's PTX writes most of them once.
"""
import re

REGISTER = re.compile(r"%[a-z]+\d+\b")
STATEMENT = re.compile(
    r"^\s*\{?\s*(?P<guard>@!?%p\d+\s+)?(?P<opcode>[a-z][\w.:]*)(?:\s+(?P<operands>.*?))?;\s*\}?\s*$")
WRITES_NOTHING = re.compile(r"^(st|red|bar|bra|ret|membar|fence|cp|prefetch|mbarrier\.(init|inval|arrive|expect))\b")
INTEGER_ARITHMETIC = re.compile(
    r"^(add|sub|mul|mad|shl|shr|and|or|xor|min|max|neg|selp|cvt|cvta|mov|div|rem)\..*[subx](16|32|64)$")
COPY = re.compile(r"^(mov|cvt|cvta)\.")


class AnchorLost(Exception):
    """No instruction of the kernel is what an edit looks for."""


class Instruction:
    def __init__(self, number, match):
        self.number = number  # of its line
        self.opcode = match["opcode"]
        self.operands = match["operands"] or ""
        if self.operands.startswith("{"):
            target, _, rest = self.operands[1:].partition("}")
        else:
            target, _, rest = self.operands.partition(",")
        if WRITES_NOTHING.match(self.opcode):
            target, rest = "", self.operands
        self.writes = set(REGISTER.findall(target))
        self.reads = set(REGISTER.findall(rest))
        self.address = set(REGISTER.findall("".join(re.findall(r"\[[^\]]*\]", self.operands))))
        self.guard = set(REGISTER.findall(match["guard"] or ""))


class Selection:
    def __init__(self, kernel, chosen, how):
        self.kernel = kernel
        self.chosen = chosen
        self.how = how

    def _narrowed(self, keep, step):
        return Selection(self.kernel, [i for i in self.chosen if keep(i)], f"{self.how}, {step}")

    def op(self, pattern):
        return self._narrowed(lambda i: re.fullmatch(pattern, i.opcode), f"opcode {pattern}")

    def text(self, pattern):
        return self._narrowed(lambda i: re.search(pattern, i.operands), f"operands with {pattern}")

    def reading(self, source):
        """Those that read a register of `source`, a selection or a set of registers."""
        registers = registers_of(source)
        return self._narrowed(lambda i: i.reads & registers, f"reading [{how_of(source)}]")

    def not_reading(self, source):
        registers = registers_of(source)
        return self._narrowed(lambda i: not i.reads & registers, f"not reading [{how_of(source)}]")

    def at(self, source):
        """Memory accesses whose address uses a register of `source`."""
        registers = registers_of(source)
        return self._narrowed(lambda i: i.address & registers, f"at an address from [{how_of(source)}]")

    def read_by(self, user):
        registers = {r for i in user.chosen for r in i.reads | i.guard}
        return self._narrowed(lambda i: i.writes & registers, f"read by [{user.how}]")

    def in_place(self):
        return self._narrowed(lambda i: i.writes & i.reads, "updating its own register")

    def after(self, other):
        """Those behind the first of `other`, in the order of the text."""
        first = other.require()[0].number
        return self._narrowed(lambda i: i.number > first, f"after [{other.how}]")

    def before(self, other):
        last = other.require()[-1].number
        return self._narrowed(lambda i: i.number < last, f"before [{other.how}]")

    def nearest_before(self, other):
        """For each of `other` the last of these in front of it."""
        found = {max((i.number for i in self.chosen if i.number < o.number), default=None) for o in other.require()}
        return self._narrowed(lambda i: i.number in found, f"nearest before [{other.how}]")

    def nearest_after(self, other):
        """For each of `other` the first of these behind it."""
        found = {min((i.number for i in self.chosen if i.number > o.number), default=None) for o in other.require()}
        return self._narrowed(lambda i: i.number in found, f"nearest after [{other.how}]")

    def nth(self, n):
        """The n-th, from 0; negative from the end."""
        chosen = self.chosen[n:][:1] if n >= -len(self.chosen) else []
        return Selection(self.kernel, chosen, f"{self.how}, number {n}")

    def require(self):
        if not self.chosen:
            raise AnchorLost(self.how)
        return self.chosen

    def edit(self, pattern, replacement):
        """Substitutes in the lines of all chosen instructions; each must change."""
        for i in self.require():
            old = self.kernel.lines[i.number]
            new = re.sub(pattern, replacement, old, count=1)
            if new == old:
                raise AnchorLost(f"{self.how}; then /{pattern}/ in: {old.strip()}")
            self.kernel.lines[i.number] = new

    def drop(self):
        for i in self.require():
            self.kernel.lines[i.number] = f"\t// dropped: {self.kernel.lines[i.number].strip()}"

    def rewrite(self, make):
        """Replaces each by the text make(operands) with operands split at top-level commas."""
        for i in self.require():
            self.kernel.lines[i.number] = "\t" + make(split_operands(i.operands))

    def prepend(self, make):
        """Adds a line make(operands) in front of each."""
        for i in self.require():
            self.kernel.lines[i.number] = f"\t{make(split_operands(i.operands))}\n{self.kernel.lines[i.number]}"

    def append(self, make):
        for i in self.require():
            self.kernel.lines[i.number] += f"\n\t{make(split_operands(i.operands))}"


class Registers(set):
    def __init__(self, values, how):
        super().__init__(values)
        self.how = how


def registers_of(source):
    return source if isinstance(source, set) else {r for i in source.chosen for r in i.writes}


def how_of(source):
    return source.how


def split_operands(text):
    """'a, {b, c}, [d]' -> ['a', '{b, c}', '[d]']"""
    parts, depth, start = [], 0, 0
    for at, c in enumerate(text):
        depth += c in "{[("
        depth -= c in "}])"
        if c == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return parts + [text[start:].strip()]


class Kernel:
    """`header` and `text` of one entry; `fields` maps names of the parameter struct to byte offsets."""

    def __init__(self, name, header, text, fields):
        self.name = name
        self.header = header
        self.lines = text.split("\n")
        self.fields = fields
        self.instructions = []
        for number, line in enumerate(self.lines):
            match = STATEMENT.match(line.split("//")[0])
            if match:
                self.instructions.append(Instruction(number, match))

    def text(self):
        return self.header + "\n".join(self.lines)

    def op(self, pattern):
        return Selection(self, self.instructions, self.name).op(pattern)

    def declare(self, line):
        """Adds a declaration, such as '.reg .f32 %mutant;', to the body."""
        self.lines[self.lines.index("{")] += f"\n\t{line}"

    def operands(self, selection):
        """Operands of all chosen instructions, each split at top-level commas."""
        return [split_operands(i.operands) for i in selection.require()]

    def _closure(self, source, opcodes, what):
        registers = set(registers_of(source))
        while True:
            more = {r for i in self.instructions if opcodes.match(i.opcode) and i.reads & registers for r in i.writes}
            if more <= registers:
                return Registers(registers, f"{what} [{how_of(source)}]")
            registers |= more

    def copies(self, source):
        """The registers of `source` and their copies and conversions."""
        return self._closure(source, COPY, "copies of")

    def derived(self, source):
        """Whatever integer arithmetic makes of `source`."""
        return self._closure(source, INTEGER_ARITHMETIC, "derived from")

    def _parameter_addresses(self):
        base = {}
        for _ in range(2):
            for i in self.instructions:
                parts = split_operands(i.operands)
                if re.match(r"mov\.[bu]64", i.opcode) and parts[1] == f"{self.name}_param_0":
                    base[parts[0]] = 0
                if re.match(r"add\.s64", i.opcode) and parts[1] in base and re.fullmatch(r"-?\d+", parts[2]):
                    base[parts[0]] = base[parts[1]] + int(parts[2])
        base[f"{self.name}_param_0"] = 0
        return base

    def param(self, field):
        """The loads of a field of the parameter struct. A vector load counts for all its fields, but writes only
        the register of this one."""
        base, chosen = self._parameter_addresses(), []
        for i in self.instructions:
            load = re.fullmatch(r"ld\.param(?:\.v(\d))?\.[a-z](\d+)", i.opcode)
            place = re.search(r"\[([%\w]+)(?:\+(-?\d+))?\]", i.operands)
            if not load or not place or place[1] not in base:
                continue
            offset = base[place[1]] + int(place[2] or 0)
            size = int(load[2]) // 8
            names = re.findall(r"%[a-z]+\d+", i.operands.split("[")[0])
            for lane, name in enumerate(names):
                if offset + lane * size == self.fields[field]:
                    alone = Instruction.__new__(Instruction)
                    alone.__dict__.update(i.__dict__, writes={name})
                    chosen.append(alone)
        return Selection(self, chosen, f"{self.name}, parameter {field}")

    def loads_through(self, field):
        """Loads from global memory through the pointer parameter `field`."""
        return self.op(r"ld\.global\..*").at(self.derived(self.param(field)))


def read_entry(module_text, entry, fields):
    """The Kernel `entry` of a PTX module, or None. Only this entry is kept."""
    pieces = re.split(r"(?m)^(?=\.visible \.entry )", module_text)
    for piece in pieces[1:]:
        if piece.startswith(f".visible .entry {entry}("):
            return Kernel(entry, pieces[0], re.sub(r"(?m)^\s*// .*\n", "", piece).rstrip() + "\n", fields)
    return None


def read_fields(header_text, struct):
    """Byte offsets of a parameter struct's members, from kernel_params.hpp."""
    body = re.search(rf"struct {struct} \{{(.*?)\n\}};", header_text, re.S)
    if not body:
        raise AnchorLost(f"struct {struct} in the parameter header")
    offsets, at = {}, 0
    for kind, names in re.findall(r"^\s*([^;]*?[\s*])(\w+(?:, \w+)*);", re.sub(r"//.*", "", body[1]), re.M):
        size = 8 if "*" in kind or "64" in kind else 4
        for name in names.split(","):
            at = (at + size - 1) // size * size
            offsets[name.strip()] = at
            at += size
    return offsets
