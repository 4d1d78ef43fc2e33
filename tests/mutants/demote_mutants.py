"""Mutants of the demotion from K8V4 to K4V2."""
from mutant import failed, k8v4, move_address, mutant
from ptx import Registers

DEMOTE = "demote"
BOTH = [k8v4(64), k8v4(128)]
SEVENTEEN, FIVE = "0f41880000", "0f40A00000"  # factors of a scale: K, V


def exchange_constants(k, constants):
    """Each key of `constants` becomes its value wherever it is added."""
    for old, new in constants.items():
        k.op(r"(add|mad\.lo)\.[su]32").text(rf", {old}$").edit(rf", {old};", f", {new};")


def widenings(k, factor):
    """The multiplications of a scale by `factor`."""
    return k.op(r"mul\.rn\.f32").reading(k.op(r"mov\.f32").text(factor))


def pairs(k, factor):
    """The registers with scale and zero, those whose scale is multiplied by `factor`."""
    halves = k.op(r"cvt\.u16\.u32").read_by(k.op(r"cvt\.f32\.f16").read_by(widenings(k, factor)))
    return Registers({r for i in halves.require() for r in i.reads}, f"sources of {halves.how}")


# Codes and scales.

@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages", "key code"))
def key_rounding_127(k):
    """Codes of K are (15 c + 127) / 256, which rounds some of them down."""
    exchange_constants(k, {0x00870087: 0x007f007f, 0x08700870: 0x07f007f0})


@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages", "value code"))
def value_rounding_8(k):
    """Codes of V are (3 c + 8) / 16, which rounds 13 down."""
    exchange_constants(k, {0x09090909: 0x08080808, 0x24242424: 0x20202020})


@mutant(DEMOTE, on=BOTH, case="ascending", expect=failed("low_pages", "key scale"))
def key_scale_16(k):
    """The scale of K grows by 16, the ratio of the code counts, not by 17, that of the highest codes."""
    k.op(r"mov\.f32").text(SEVENTEEN).edit(SEVENTEEN, "0f41800000")


@mutant(DEMOTE, on=BOTH, case="ascending", expect=failed("low_pages", "value scale"))
def value_scale_4(k):
    """The scale of V grows by 4, not by 5."""
    k.op(r"mov\.f32").text(FIVE).edit(FIVE, "0f40800000")


@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages", "scale"))
def scale_truncated(k):
    """The scale becomes fp16 by truncation."""
    k.op(r"cvt\.rn\.f16\.f32").edit(r"cvt\.rn", "cvt.rz")


@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages", "value zero"))
def value_zero_widened(k):
    """The zero of V is multiplied like its scale."""
    k.declare(".reg .f32 %mutant;\n\t.reg .b16 %mutant_half;\n\t.reg .b32 %mutant_zero;")
    k.op(r"and\.b32").reading(pairs(k, FIVE)).text(", -65536$").rewrite(
        lambda o: f"shr.u32 %mutant_zero, {o[1]}, 16;\n\tcvt.u16.u32 %mutant_half, %mutant_zero;\n"
                  f"\tcvt.f32.f16 %mutant, %mutant_half;\n\tmul.rn.f32 %mutant, %mutant, {FIVE};\n"
                  f"\tcvt.rn.f16.f32 %mutant_half, %mutant;\n\tcvt.u32.u16 %mutant_zero, %mutant_half;\n"
                  f"\tshl.b32 {o[0]}, %mutant_zero, 16;")


# Finding and placing tokens.

@mutant(DEMOTE, on=BOTH, case="ascending", expect=failed("low_pages"))
def slot_in_the_first_eight(k):
    """A token is looked for in its page at slot % 8."""
    k.op(r"sub\.s32").reading(k.loads_through("tokens")).append(lambda o: f"and.b32 {o[0]}, {o[0]}, 7;")


@mutant(DEMOTE, on=BOTH, case="repeated", expect=failed("low_pages", "value code"))
def even_token_of_a_pair(k):
    """Values of an odd slot are those of the even slot before, which shares its halves."""
    k.op(r"selp\.b32").text(", 50, 16, ").edit(", 50, 16,", ", 16, 16,")


@mutant(DEMOTE, on=BOTH, case="repeated", expect=failed("low_pages"))
def page_of_the_next_table_entry(k):
    """A token is read from the page behind its own."""
    move_address(k.loads_through("from_table"), 4)


@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages"))
def replace_clears_the_page(k):
    """A page whose slot 0 is overwritten loses its other tokens."""
    k.param("replace").append(lambda o: f"mov.u32 {o[0]}, 0;")


@mutant(DEMOTE, on=BOTH, case="random", expect=failed("low_pages", "padding"))
def append_leaves_old_bytes(k):
    """Slots of a fresh page behind the last token keep what was there before."""
    k.param("replace").append(lambda o: f"mov.u32 {o[0]}, 1;")
