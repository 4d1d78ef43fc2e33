"""Mutants of quantize + pack. Anchors name instructions by what they do (ptx.py); where a kernel was rewritten and
one is lost, find the instruction that the docstring speaks of and say again how it is recognised."""
from mutant import exchange_fields, failed, fault, int2, k4v2, k8v4, move_address, mutant

QUANTIZE = "quantize"
ROUNDING_SHIFT = "0f4B400000"  # 1.5 * 2^23: adding it rounds to an integer
HALVES_FROM_FLOATS = r"cvt\.rn\.f16x2\.f32"
NEVER = "setp.ne.u32 {}, 0, 0;"


def roundings(k):
    """Additions that turn a quotient into a code."""
    return k.op(r"add\.rn\.f32").reading(k.op(r"mov\.f32").text(ROUNDING_SHIFT))


def round_by(k, mode, more):
    """Rounds a quotient plus `more` in another mode before the shift is added."""
    k.declare(".reg .f32 %mutant;\n\t.reg .b32 %mutant_code;")
    roundings(k).rewrite(
        lambda o: f"add.rn.f32 %mutant, {o[1]}, {more};\n\tcvt.{mode}.s32.f32 %mutant_code, %mutant;\n"
                  f"\tcvt.rn.f32.s32 %mutant, %mutant_code;\n\tadd.rn.f32 {o[0]}, %mutant, {o[2]};")


def quotients(k):
    """(x - zero) * high + (x - zero) * low."""
    differences = k.op(r"sub\.rn\.f32")
    return k.op(r"fma\.rn\.f32").reading(differences).reading(k.op(r"mul\.rn\.f32").reading(differences))


def steps(k):
    """The last fma of range / (2^b - 1); its result becomes the scale in fp16."""
    return k.op(r"fma\.rn\.f32").reading(k.op(r"fma\.rn\.f32")).read_by(k.op(HALVES_FROM_FLOATS))


def scales(k):
    """The conversions of a zero and a scale to a pair of halves."""
    return k.op(HALVES_FROM_FLOATS).reading(steps(k))


def first_touches(k):
    """The comparisons that say whether a page's slot 0 is written: then all of it is."""
    first_slots = k.op(r"sub\.s32").reading(k.loads_through("first_token"))
    return k.op(r"setp\.(lt|gt)\.s32").reading(first_slots).text(r", [01]$")


# The quantizer.

@mutant(QUANTIZE, on=[k8v4(64), int2(64)], case="normal_pieces144", expect=failed("pages", "code"))
def codes_truncated(k):
    """A code is the quotient's integer part, not the nearest integer."""
    round_by(k, "rzi", "0f00000000")


@mutant(QUANTIZE, on=[k4v2(128), int2(64)], case="exact_halves_pieces144", expect=failed("pages", "code"))
def ties_upwards(k):
    """Exact halves round up, not to even."""
    round_by(k, "rmi", "0f3F000000")


@mutant(QUANTIZE, on=[int2(64), int2(128)], case="normal_pieces144", expect=failed("pages", "scale"))
def key_scales_of_seven_bits(k):
    """Scales of 2-bit keys are rounded to seven significant bits, not six."""
    k.op(r"add\.s32").text(r", 15$").edit(", 15;", ", 7;")
    k.op(r"and\.b32").text(r", -32$").edit(", -32;", ", -16;")


@mutant(QUANTIZE, on=[int2(64), int2(128)], case="normal_pieces144", expect=failed("pages", "scale"))
def key_scale_ties_upwards(k):
    """Ties of that rounding go up, not to even."""
    k.op(r"and\.b32").text(r", 1$").reading(k.op(r"shr\.u32").text(r", 5$").reading(k.op(HALVES_FROM_FLOATS))).rewrite(
        lambda o: f"mov.b32 {o[0]}, 1;")


@mutant(QUANTIZE, on=[k8v4(128), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def scale_truncated(k):
    """The scale becomes fp16 by truncation."""
    scales(k).edit(r"cvt\.rn", "cvt.rz")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128)], case="ties_pieces144", expect=failed("pages"))
def step_not_corrected(k):
    """The scale is range * RN(1 / (2^b - 1)), without the correction by the remainder."""
    steps(k).rewrite(lambda o: f"mov.f32 {o[0]}, {o[3]};")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="normal_pieces144", expect=failed("pages", "code"))
def codes_against_the_unrounded_scale(k):
    """Codes are computed with the fp32 scale, not with the stored fp16 one."""
    unrounded = {o[0]: o[2] for o in k.operands(scales(k))}
    halves = k.op(r"cvt\.u16\.u32").reading(scales(k))
    step = {o[0]: unrounded[o[1]] for o in k.operands(halves)}
    k.op(r"cvt\.f32\.f16").reading(halves).rewrite(lambda o: f"mov.f32 {o[0]}, {step[o[1]]};")


@mutant(QUANTIZE, on=[k4v2(128), k8v4(64), int2(64), int2(128)], case="ties_pieces144",
        expect=failed("pages", "code"))
def multiplication_by_the_reciprocal(k):
    """(x - zero) * RN(1 / scale) for (x - zero) / scale: the low part of the reciprocal is not added."""
    quotients(k).rewrite(lambda o: f"mul.rn.f32 {o[0]}, {o[1]}, {o[2]};")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def range_divided_by_two_to_the_b(k):
    """The scale is range / 2^b instead of range / (2^b - 1)."""
    k.declare(".reg .f32 %mutant;")
    steps(k).append(lambda o: f"add.rn.f32 %mutant, {o[2]}, 0f3F800000;\n\tdiv.rn.f32 {o[0]}, {o[0]}, %mutant;")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128)], case="tiny_pieces144", expect=failed("pages"))
def clamp_missing(k):
    """A quotient above the highest code (a subnormal scale was rounded down) spills into the neighbour's bits."""
    k.op(r"min\.f32").reading(quotients(k)).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(QUANTIZE, on=[int2(64), k4v2(128)], case="least_pieces144", expect=failed("pages"))
def quotients_limited_at_the_least_scale_alone(k):
    """Groups with a scale of 2 units of 2^-24 and more take the path without a limit."""
    k.op(r"setp\.lt\.u32").text(r", (3|15|255)$").read_by(k.op(r"or\.pred")).edit(r", (3|15|255);", ", 1;")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="constant_pieces144", expect=failed("pages"))
def zero_scale_not_tested(k):
    """A constant group is divided by its scale of 0."""
    scale = k.op(r"and\.b32").reading(scales(k)).text(", 65535$")
    k.op(r"setp\.eq\.s32").reading(scale).text(", 0$").rewrite(lambda o: NEVER.format(o[0]))


# Groups that are not finite.

@mutant(QUANTIZE, on=[k8v4(128), int2(64)], case="nonfinite_pieces144", expect=failed("pages", "0x7fff"))
def infinity_in_the_scale(k):
    """A group with an infinity stores what the arithmetic makes of it, not the NaN of the contract."""
    k.op(r"selp\.b32").reading(scales(k)).rewrite(lambda o: f"mov.b32 {o[0]}, {o[1]};")


@mutant(QUANTIZE, on=[k4v2(64), int2(128)], case="nonfinite_pieces144", expect=failed("pages"))
def nan_ignored(k):
    """The extremes of a group are those of its numbers: a NaN among them is not seen."""
    k.op(r"(min|max)\.NaN\.f16x2").edit(r"\.NaN", "")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="nonfinite_pieces144", expect=failed("pages", "code"))
def codes_of_a_group_with_nan(k):
    """A group that is not finite gets the codes of its quotients, not 0."""
    k.op(r"setp\.(eq|equ|ne|neu)\.f32").text("0f00000000").rewrite(lambda o: NEVER.format(o[0]))


@mutant(QUANTIZE, on=[k8v4(128), k4v2(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def minimum_and_maximum_swapped(k):
    """The exchange between lanes takes the maximum of the minima."""
    k.op(r"min\.NaN\.f16x2").reading(k.op(r"shfl\.sync\.bfly\.b32")).edit(r"min\.", "max.")


@mutant(QUANTIZE, on=[k4v2(64), int2(64)], case="zero_signs_pieces144", expect=failed("pages"))
def negative_zero_stored(k):
    """The sign of a minimum of -0 is stored."""
    k.op(r"add\.rn\.f32").reading(k.op(r"mov\.f32").text("0f00000000")).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(QUANTIZE, on=[k8v4(64)], case="normal_pieces144", expect=failed("pages", "scale"))
def scale_and_zero_swapped(k):
    """Scale and zero of a token change places in the page."""
    stored = k.op(r"selp\.b32").reading(scales(k))
    k.op(r"st\.global\.[bu]32").reading(stored).prepend(lambda o: f"shf.l.wrap.b32 {o[1]}, {o[1]}, {o[1]}, 16;")


@mutant(QUANTIZE, on=[k4v2(128), k8v4(64)], case="normal_pieces144", expect=failed("pages"))
def scale_of_the_first_lane(k):
    """All tokens of a unit get their codes by the step of the token of lane 0."""
    k.op(r"shfl\.sync\.idx\.b32").rewrite(lambda o: f"shfl.sync.idx.b32 {o[0]}, {o[1]}, 0, {o[3]}, {o[4]};")


# Reading and placing tokens.

@mutant(QUANTIZE, on=[k4v2(128), int2(64)], case="normal_pieces144", expect=failed("pages"))
def keys_quantized_as_values(k):
    """Values are read through the pointer of the keys."""
    k.op(r"add\.s64").in_place().text(", 8$").drop()


@mutant(QUANTIZE, on=[k4v2(128), k8v4(64)], case="normal_pieces144", expect=failed("pages", "code"))
def values_not_transposed(k):
    """Values are read from shared memory in the order of keys."""
    k.op(r"ldmatrix\..*\.trans\..*").edit(r"\.trans", "")


@mutant(QUANTIZE, on=[k8v4(64), int2(128)], case="normal_pieces144", expect=failed("pages"))
def rows_read_before_they_have_arrived(k):
    """The copies to shared memory are not waited for."""
    k.op(r"cp\.async\.wait_all").drop()


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
    first_touches(k).edit(r", [01];", ", -1000;")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(128), int2(128)], case="normal_pieces23", expect=failed("pages"))
def slots_behind_the_end_get_a_token(k):
    """Slots behind the last token of a fresh page get the codes of a token, not zero bytes."""
    k.op(r"cp\.async\.cg\..*").text(r", %r\d+$").edit(r", %r\d+;", ", 16;")


@mutant(QUANTIZE, on=[k8v4(64), k4v2(64), int2(128)], case="normal_pieces23", expect=failed("pages"))
def append_rewrites_the_page(k):
    """An append into a page that holds tokens already stores the whole page and wipes them."""
    first_touches(k).edit(r", [01];", ", 1000;")


@mutant(QUANTIZE, on=[k4v2(64), int2(128)], case="normal_pieces144", expect=failed("pages", "code"))
def code_in_the_wrong_field(k):
    """Codes are shifted by one bit too few."""
    k.op(r"shl\.b32").reading(k.op(r"mov\.b32").reading(roundings(k))).edit(
        r", (\d+);", lambda m: f", {int(m[1]) - 1};")


@mutant(QUANTIZE, on=[int2(64), int2(128)], case="normal_pieces144", expect=failed("pages", "code"))
def fields_not_moved(k):
    """The exchange of fields between eight lanes keeps each field in its place of the word."""
    k.op(r"shf\.l\.wrap\.b32").rewrite(lambda o: f"mov.b32 {o[0]}, {o[1]};")
