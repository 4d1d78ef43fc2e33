"""Mutants of quantize + pack. Anchors name instructions by what they do (ptx.py); where a kernel was rewritten and
one is lost, find the instruction that the docstring speaks of and say again how it is recognised."""
from mutant import exchange_fields, failed, fault, int2, k4v2, k8v4, move_address, mutant

QUANTIZE = "quantize"
TO_INTEGER = r"cvt\.rni\.[su]32\.f32"


def levels(k):
    """Instructions that limit a quotient to the highest code."""
    return k.op(r"min\.f32").read_by(k.op(TO_INTEGER))


# The quantizer.

@mutant(QUANTIZE, on=[k8v4(64), int2(64)], case="normal_pieces144", expect=failed("pages", "code"))
def codes_truncated(k):
    """A code is the quotient's integer part, not the nearest integer."""
    k.op(TO_INTEGER).edit(r"cvt\.rni", "cvt.rzi")


@mutant(QUANTIZE, on=[k4v2(128), int2(64)], case="exact_halves_pieces144", expect=failed("pages", "code"))
def ties_upwards(k):
    """Exact halves round up, not to even."""
    k.declare(".reg .f32 %mutant;")
    k.op(TO_INTEGER).rewrite(lambda o: f"add.rn.f32 %mutant, {o[1]}, 0f3F000000;\n\tcvt.rmi.s32.f32 {o[0]}, %mutant;")


@mutant(QUANTIZE, on=[k8v4(128), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def scale_truncated(k):
    """The scale becomes fp16 by truncation."""
    k.op(r"cvt\.rn\.f16\.f32").reading(k.op(r"div\.rn\.f32")).edit(r"cvt\.rn", "cvt.rz")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="normal_pieces144", expect=failed("pages", "code"))
def codes_against_the_unrounded_scale(k):
    """Codes are computed with the fp32 scale, not with the stored fp16 one."""
    scales = {o[0]: o[1] for o in k.operands(k.op(r"cvt\.rn\.f16\.f32").reading(k.op(r"div\.rn\.f32")))}
    k.op(r"cvt\.f32\.f16").reading(k.op(r"cvt\.rn\.f16\.f32").reading(k.op(r"div\.rn\.f32"))).rewrite(
        lambda o: f"mov.f32 {o[0]}, {scales[o[1]]};")


@mutant(QUANTIZE, on=[k4v2(128), k8v4(64)], case="normal_pieces144", expect=failed("pages", "code"))
def multiplication_by_the_reciprocal(k):
    """(x - zero) * (1 / scale) for (x - zero) / scale."""
    k.declare(".reg .f32 %mutant;")
    k.op(r"div\.rn\.f32").read_by(levels(k)).rewrite(
        lambda o: f"rcp.rn.f32 %mutant, {o[2]};\n\tmul.rn.f32 {o[0]}, {o[1]}, %mutant;")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def range_divided_by_two_to_the_b(k):
    """The scale is range / 2^b instead of range / (2^b - 1)."""
    k.declare(".reg .f32 %mutant;")
    k.op(r"div\.rn\.f32").read_by(k.op(r"cvt\.rn\.f16\.f32")).rewrite(
        lambda o: f"add.rn.f32 %mutant, {o[2]}, 0f3F800000;\n\tdiv.rn.f32 {o[0]}, {o[1]}, %mutant;")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128)], case="tiny_pieces144", expect=failed("pages"))
def clamp_missing(k):
    """A quotient above the highest code (a subnormal scale was rounded down) spills into the neighbour's bits."""
    levels(k).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="constant_pieces144", expect=failed("pages"))
def zero_scale_not_tested(k):
    """A constant group is divided by its scale of 0."""
    k.op(r"setp\.(eq|equ|ne|neu)\.f32").text("0f00000000").rewrite(lambda o: f"setp.ne.u32 {o[0]}, 0, 0;")


@mutant(QUANTIZE, on=[k8v4(128), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def minimum_and_maximum_swapped(k):
    """The exchange between lanes takes the maximum of the minima."""
    k.op(r"min\.f32").reading(k.copies(k.op(r"shfl\.sync\.bfly\.b32"))).edit(r"min\.f32", "max.f32")


@mutant(QUANTIZE, on=[k4v2(64), int2(64)], case="zero_signs_pieces144", expect=failed("pages"))
def negative_zero_stored(k):
    """The sign of a minimum of -0 is stored."""
    k.op(r"add\.rn\.f32").reading(k.op(r"mov\.f32").text("0f00000000")).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(QUANTIZE, on=[k8v4(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def scale_and_zero_swapped(k):
    """Scale and zero of a token change places in the page."""
    k.op(r"st\.shared\.v4\.[bu]16").edit(r"\{(\S+), (\S+), ", r"{\2, \1, ")


# Reading and placing tokens.

@mutant(QUANTIZE, on=[k4v2(128), int2(64)], case="normal_pieces144", expect=failed("pages"))
def keys_quantized_as_values(k):
    """Values are read through the pointer of the keys."""
    exchange_fields(k, "v", "k")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="normal_pieces23", expect=failed("pages"))
def head_stride_for_token_stride(k):
    """The next token is looked for at the stride of the heads."""
    exchange_fields(k, "stride_token", "stride_head")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128)], case="normal_pieces23", expect=failed("pages"))
def one_token_too_many(k):
    """One token behind the range is quantized too."""
    k.op(r"ld\.global\.[bsu]32").at(k.derived(k.param("num_new"))).append(lambda o: f"add.s32 {o[0]}, {o[0]}, 1;")


@mutant(QUANTIZE, on=[k8v4(128), int2(64)], case="normal_pieces144", expect=fault("out-of-bounds"))
def page_of_the_next_table_entry(k):
    """The page's place in the table is off by one: the last page's id comes from behind the table."""
    move_address(k.loads_through("page_table"), 4)


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128), int2(128)], case="normal_pieces23", expect=failed("pages", "padding"))
def first_touch_leaves_old_bytes(k):
    """Slots behind the last token of a fresh page keep what was there before."""
    k.op(r"st\.shared\.v4\.[bu]32").drop()


@mutant(QUANTIZE, on=[k8v4(64), k4v2(64), int2(128)], case="normal_pieces23", expect=failed("pages"))
def append_rewrites_the_page(k):
    """An append into a page that holds tokens already stores the whole page and wipes them."""
    k.op(r"setp\.(lt|gt|eq|ne)\.s32").reading(k.derived(k.loads_through("first_token"))).text(r", [01]$").after(
        k.op(r"bar\.sync").nth(1)).edit(r", [01];", ", 1000;")


@mutant(QUANTIZE, on=[k4v2(64), int2(128)], case="normal_pieces144", expect=failed("pages", "code"))
def code_in_the_wrong_field(k):
    """The second code of a half is shifted by one bit too few."""
    k.op(r"shl\.b32").read_by(k.op(r"or\.b32")).reading(k.op(r"ld\.shared\.u8")).edit(
        r", (\d+);", lambda m: f", {int(m[1]) - 1};")


# Synchronisation.

@mutant(QUANTIZE, on=[k8v4(64), int2(64)], case="normal_pieces144", expect=failed("pages"))
def codes_written_before_the_scratch_is_cleared(k):
    """No barrier between clearing the scratch and the first codes."""
    k.op(r"bar\.sync").nth(0).drop()


@mutant(QUANTIZE, on=[k4v2(128), int2(128)], case="normal_pieces144", expect=failed("pages"))
def codes_gathered_before_they_are_written(k):
    """No barrier between the codes and the threads that pack them."""
    k.op(r"bar\.sync").nth(1).drop()
