"""Mutants of decode attention. Anchors name instructions by what they do (ptx.py); where a kernel was rewritten
and one is lost, find the instruction that the docstring speaks of and say again how it is recognised."""
from mutant import exchange_fields, failed, fault, int2, k4v2, k8v4, move_address, mutant, off_by_one

DECODE = "decode"
MMA = r"mma\.sync\..*"
EX2 = r"ex2\.approx\..*"
MINUS_INFINITY = "0fFF800000"
BARRIER = r"bar\.sync|barrier\.sync.*"
NEVER = "setp.ne.u32 {}, 0, 0;"
ALWAYS = "setp.eq.u32 {}, 0, 0;"
TRACE_LAYER = "smollm2-135m-instruct/layer09"


def head_dim(k):
    return 128 if "_d128_" in k.name else 64


def num_quantized(k):
    return k.copies(k.loads_through("num_quantized"))


def num_recent(k):
    return k.copies(k.loads_through("num_recent"))


def masks(k, length):
    """The comparisons of a token with a length that choose between a score and -inf."""
    return k.op(r"setp\.(lt|ge|le|gt)\.[su]32").reading(length).read_by(k.op(r"selp\.f32").text(MINUS_INFINITY))


def rescalings(k):
    """In-place multiplications by the factor of a risen maximum."""
    return k.op(r"mul\.rn\.f32").in_place()


def in_the_fold(k, pattern):
    """Instructions behind the ticket: the last CTA of a head folds its partials there."""
    return k.op(pattern).after(k.op(r"atom\..*"))


# Masks and lengths.

@mutant(DECODE, on=[k8v4(64, 3), k4v2(128, 7)], case="boundaries", expect=failed("out"))
def tail_mask_off_by_one(k):
    """The first token behind the end of the quantized part takes part in the softmax."""
    off_by_one(masks(k, num_quantized(k)))


@mutant(DECODE, on=[int2(64, 3), k8v4(128, 4)], case="boundaries", expect=failed("out"))
def tail_mask_missing(k):
    """All 64 slots of the last page take part in the softmax."""
    k.op(r"selp\.f32").text(MINUS_INFINITY).reading(masks(k, num_quantized(k))).rewrite(
        lambda o: f"mov.f32 {o[0]}, {o[2] if o[1] == MINUS_INFINITY else o[1]};")


@mutant(DECODE, on=[k4v2(64, 5), int2(128, 8)], case="boundaries", expect=failed("out"))
def recent_mask_off_by_one(k):
    """The first slot behind the end of the fp16 recent part counts as a token."""
    off_by_one(k.op(r"setp\.(lt|ge)\.s32").reading(num_recent(k)).read_by(k.op(r"bra|selp\..*")))


@mutant(DECODE, on=[k8v4(64, 3), int2(128, 4)], case="boundaries", expect=failed("out"))
def recent_values_behind_the_end(k):
    """Values of slots behind the end of the recent part are read, not +0: a probability of 0 times whatever is there."""
    k.op("bra").nearest_before(k.loads_through("recent_v")).drop()


@mutant(DECODE, on=[k8v4(64, 3)], case="boundaries", expect=failed("scores"))
def score_written_behind_the_end(k):
    """A score is stored for the first token behind the end."""
    off_by_one(k.op(r"setp\.(ge|lt)\.s32").reading(num_quantized(k)).read_by(k.op(r"bra|or\.pred"))
               .after(k.op(r"mbarrier\.try_wait.*")).before(k.op(r"vote\..*")))


@mutant(DECODE, on=[int2(64, 5)], case="boundaries", expect=failed("state"))
def empty_cache_has_maximum_zero(k):
    """A head without any token reports m = 0, not -inf."""
    k.op(r"mov\.[bus]32").text(r"-8388608|4286578688").edit(r"-8388608|4286578688", "0")


# Pages, queries and scales.

@mutant(DECODE, on=[k8v4(128, 4), int2(64, 7)], case="boundaries", expect=failed("out"))
def page_id_of_another_page(k):
    """The id of a warp's first page serves for all its pages: the register that holds 32 ids is read at lane 0."""
    k.op(r"shfl\.sync\.idx\.b32").reading(k.copies(k.loads_through("page_table"))).rewrite(
        lambda o: f"shfl.sync.idx.b32 {o[0]}, {o[1]}, 0, {o[3]}, {o[4]};")


@mutant(DECODE, on=[k4v2(64, 1), k8v4(128, 2)], case="whole_heads", expect=failed("out"))
def page_ids_not_reloaded(k):
    """The ids of a warp's first 32 pages of a head serve again for the next 32."""
    k.op(r"setp\.(ne|eq)\.s32").reading(k.op(r"and\.b32").text(", 31$").after(k.op(r"bar\.warp\.sync"))).rewrite(
        lambda o: ALWAYS.format(o[0]))


@mutant(DECODE, on=[k4v2(128, 1), int2(128, 1)], case="folded", expect=failed("out"))
def producer_enters_the_next_head_at_split_1(k):
    """The ids asked for ahead of the next head are those of its second split."""
    ids, lengths = k.loads_through("page_table"), k.loads_through("num_quantized")
    of_the_first_head = ids.nth(1)  # mended
    move_address(ids.nearest_after(lengths.after(of_the_first_head)), 4 * 16)


@mutant(DECODE, on=[k8v4(128, 1), k4v2(64, 2)], case="folded", expect=failed("out"))
def split_length_guessed(k):
    """A CTA that begins inside a head takes its first ids where the longest head's split would begin."""
    k.op(r"setp\.ne\.s32").reading(k.op(r"selp\.b32").text(", 16, 32, ")).before(
        k.loads_through("page_table").nth(1)).rewrite(lambda o: NEVER.format(o[0]))


@mutant(DECODE, on=[k4v2(64, 1)], case="boundaries", expect=fault("past the end|no allocation|before the"))
def page_stride_in_wrong_unit(k):
    """A page id is multiplied by the bits of a page instead of its bytes."""
    k.op(r"mul\.wide\.s32").reading(k.copies(k.op(r"shfl\.sync\.idx\.b32").reading(
        k.copies(k.loads_through("page_table"))))).edit(r", (\d+);", lambda m: f", {8 * int(m[1])};")


@mutant(DECODE, on=[k4v2(128, 3), int2(128, 4)], case="boundaries", expect=failed("out"))
def query_of_the_next_head(k):
    """A query column holds the next query head of the group."""
    move_address(k.loads_through("q"), 2 * head_dim(k))


@mutant(DECODE, on=[k8v4(64, 8), k4v2(128, 4)], case="boundaries", expect=failed("out"))
def scale_of_the_next_token(k):
    """Scales and zeros are those of the neighbouring token."""
    move_address(k.op(r"ld\.shared\.v4\.[ub]32").read_by(k.op(r"cvt\.u16\.u32")), 16)


@mutant(DECODE, on=[int2(128, 4), int2(64, 3)], case="boundaries", expect=failed("out"))
def scale_of_the_next_tile(k):
    """A group's scales are those of the next tile of 16 tokens."""
    scales = k.op(r"ld\.shared\.v4\.[ub]32").read_by(k.op(r"mul\.rn\.f16x2"))
    move_address(scales, 2 * head_dim(k))


@mutant(DECODE, on=[k4v2(128, 4), k8v4(64, 6)], case="boundaries", expect=failed("out"))
def negative_query_elements_have_no_magnitude(k):
    """The largest element of a query, not of its magnitudes, sets the fixed point."""
    k.op(r"and\.b32").text("2147450879").edit("2147450879", "-1")


@mutant(DECODE, on=[k4v2(64, 8), k8v4(128, 4)], case="boundaries", expect=failed("out"))
def limbs_without_carry(k):
    """The high limb of a query is cut, not rounded: the signed low limb is not made up for."""
    k.op(r"add\.s32").text(", 128$").read_by(k.op(r"prmt\.b32")).edit(r", 128;", ", 0;")


@mutant(DECODE, on=[k4v2(128, 4), k8v4(64, 3)], case="sharp", expect=failed("out"))
def fixed_point_one_unit_off(k):
    """Every query element is one unit of its fixed point too small."""
    k.op(r"mov\.f32").text("0f4B400000").read_by(k.op(r"add\.rn\.f32")).edit("0f4B400000", "0f4B3FFFFF")


@mutant(DECODE, on=[k4v2(128, 4), k4v2(64, 5)], case="boundaries", expect=failed("out"))
def low_nibbles_weigh_half(k):
    """Sums over low nibbles are added 8 times instead of 16."""
    k.op(r"shl\.b32").text(", 4$").reading(k.op(MMA)).edit(r", 4;", ", 3;")


@mutant(DECODE, on=[k4v2(128, 4)], case="sharp", expect=failed("out"))
def code_from_the_wrong_nibble(k):
    """Fields are shifted out four bits too low."""
    k.op(r"shr\.[bu]32").read_by(k.op(r"and\.b32").read_by(k.op(MMA))).edit(
        r", (\d+);", lambda m: f", {int(m[1]) - 4};")


@mutant(DECODE, on=[k4v2(64, 3)], case="drift", expect=failed("out"))
def value_zero_term_with_wrong_sign(k):
    """The values' zero term is centred by +MID instead of -MID."""
    k.op(r"mov\.f32").text("0fBFC00000").edit("0fBFC00000", "0f3FC00000")  # MID = 1.5 at 2 bits


@mutant(DECODE, on=[int2(128, 4)], case="drift", expect=failed("out"))
def zero_points_subtracted(k):
    """Zero terms are subtracted, as in formats that store code - zero."""
    k.declare(".reg .f32 %mutant;")
    k.op(r"fma\.rn\.f32").reading(k.op(r"add\.rn\.f32").reading(k.op(MMA))).rewrite(
        lambda o: f"neg.f32 %mutant, {o[3]};\n\tfma.rn.f32 {o[0]}, {o[1]}, {o[2]}, %mutant;")


def two_chains(k):
    """The additions of dh and dl, what the keys give with the two numbers of a query."""
    return k.op(r"add\.rn\.f32").reading(k.op(MMA))


@mutant(DECODE, on=[int2(64, 3), int2(128, 8)], case="boundaries", expect=failed("out"))
def low_numbers_dropped(k):
    """Queries keep five bits: dl is left out."""
    two_chains(k).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(DECODE, on=[int2(64, 5), int2(128, 4)], case="boundaries", expect=failed("out"))
def queries_cut_one_bit_lower(k):
    """The high number has six bits: its products with a scale are rounded."""
    k.op(r"and\.b32").text(r", -4128832$").edit("-4128832", "-2031648")


@mutant(DECODE, on=[k8v4(64, 3), k8v4(128, 4)], case="boundaries", expect=failed("out"))
def pages_by_their_content(k):
    """Pages of K8V4 stand as far apart as their content is long."""
    k.op(r"mul\.wide\.s32").text(r", (3584|6656)$").edit(
        r", (3584|6656);", lambda m: {"3584": ", 3328;", "6656": ", 6400;"}[m[1]])


@mutant(DECODE, on=[k8v4(128, 2)], case="boundaries_noscores", expect=failed("out"))
def recent_keys_used_as_values(k):
    """The recent part's values are read from the buffer of its keys."""
    exchange_fields(k, "recent_v", "recent_k")


# Softmax.

@mutant(DECODE, on=[int2(64, 3), k8v4(128, 4)], case="boundaries", expect=failed("out"))
def output_not_rescaled(k):
    """The accumulators keep their value when the maximum rises."""
    rescalings(k).read_by(k.op(MMA)).drop()


@mutant(DECODE, on=[k4v2(128, 4)], case="boundaries", expect=failed("out"))
def sum_not_rescaled(k):
    """l keeps its value when the maximum rises."""
    rescalings(k).read_by(k.op(r"add\.rn\.f32").reading(k.op(EX2))).drop()


@mutant(DECODE, on=[k8v4(64, 3)], case="drift", expect=failed("out"))
def rescaling_factor_inverted(k):
    """ex2(new - old) for ex2(old - new) when the maximum rises."""
    k.op(r"sub\.rn\.f32").read_by(k.op(EX2).read_by(rescalings(k))).rewrite(
        lambda o: f"sub.rn.f32 {o[0]}, {o[2]}, {o[1]};")


@mutant(DECODE, on=[k4v2(64, 3), int2(128, 4)], case="sharp", expect=failed("out"))
def lanes_exchange_the_minimum(k):
    """The exchange between lanes takes the minimum of their maxima."""
    k.op(r"max\.f32").reading(k.copies(k.op(r"shfl\.sync\.bfly\.b32"))).edit(r"max\.f32", "min.f32")


@mutant(DECODE, on=[k8v4(128, 4)], case="sharp", expect=failed("out"))
def exchange_misses_its_last_step(k):
    """Half of the lanes never hear of the other half's maximum."""
    k.op(r"max\.f32").reading(k.copies(k.op(r"shfl\.sync\.bfly\.b32"))).nth(-1).rewrite(
        lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(DECODE, on=[k8v4(64, 3), int2(128, 4)], case="nonfinite", expect=failed("state"))
def maximum_takes_nan(k):
    """A score that is NaN makes the maximum NaN; the contract's maximum ignores it."""
    k.op(r"max\.f32").edit(r"max\.f32", "max.NaN.f32")


@mutant(DECODE, on=[k8v4(64, 3), k4v2(64, 3), int2(64, 3)], case="sharp", expect=failed("out"))
def probabilities_truncated(k):
    """Probabilities become fp16 by truncation."""
    k.op(r"cvt\.rn\.f16x2\.f32").edit(r"cvt\.rn", "cvt.rz")


@mutant(DECODE, on=[k8v4(128, 4)], case="sharp", expect=failed("out"))
def sum_of_rounded_probabilities(k):
    """l sums the probabilities after their rounding to fp16; the contract sums the fp32 ones."""
    k.declare(".reg .f32 %mutant;\n\t.reg .b16 %mutant_half;")
    k.op(r"add\.rn\.f32").reading(k.op(EX2)).rewrite(
        lambda o: f"cvt.rn.f16.f32 %mutant_half, {o[2]};\n\tcvt.f32.f16 %mutant, %mutant_half;\n"
                  f"\tadd.rn.f32 {o[0]}, {o[1]}, %mutant;")


# Arithmetic.

def round_twice(k, sums):
    """scale * dot + zero with two roundings for one."""
    k.declare(".reg .f32 %mutant;")
    k.op(r"fma\.rn\.f32").reading(sums).rewrite(
        lambda o: f"mul.rn.f32 %mutant, {o[1]}, {o[2]};\n\tadd.rn.f32 {o[0]}, %mutant, {o[3]};")


@mutant(DECODE, on=[k8v4(64, 3)], case="sharp", expect=failed("out"))
def score_not_contracted(k):
    """A score is rounded twice."""
    round_twice(k, k.op(MMA))


@mutant(DECODE, on=[int2(128, 4)], case="sharp", expect=failed("out"))
def score_of_two_chains_not_contracted(k):
    """The same of 2-bit keys."""
    round_twice(k, two_chains(k))


@mutant(DECODE, on=[int2(128, 4), int2(64, 3)], case="sharp", expect=failed("out"))
def channels_in_another_order(k):
    """The first two k16 steps of a tile's dot products change places (sums in integers have no order)."""
    steps = k.op(MMA).after(k.op(r"mbarrier\.try_wait.*"))
    first = steps.nth(0)
    second = steps.reading(first).nth(1)
    k.lines[second.require()[0].number] += f"\n{k.lines[first.require()[0].number]}"
    first.drop()


@mutant(DECODE, on=[int2(128, 4), k8v4(64, 3)], case="sharp", expect=failed("out"))
def division_by_reciprocal(k):
    """o * (1 / l) for o / l."""
    k.declare(".reg .f32 %mutant;")
    k.op(r"div\.rn\.f32").rewrite(
        lambda o: f"rcp.rn.f32 %mutant, {o[2]};\n\tmul.rn.f32 {o[0]}, {o[1]}, %mutant;")


# Merges.

@mutant(DECODE, on=[k4v2(64, 3), int2(128, 4)], case="boundaries", expect=failed("out"))
def last_strand_not_merged(k):
    """Only three of the four strands of a split are merged."""
    k.op(r"min\.s32").text(r", 4$").edit(", 4;", ", 3;")


@mutant(DECODE, on=[k4v2(128, 1), int2(64, 2)], case="folded", expect=failed("out"))
def maximum_of_partials_misses_a_step(k):
    """The prefix maximum over the partials of a head leaves out its second step, of distance 2."""
    in_the_fold(k, r"max\.f32").reading(k.copies(k.op(r"shfl\.sync\.up\.b32"))).nth(1).drop()


@mutant(DECODE, on=[k8v4(128, 1), k4v2(64, 2)], case="folded", expect=failed("out"))
def ninth_partial_not_loaded(k):
    """The first eight partials of a head serve again as the next eight."""
    written = k.op(BARRIER).after(in_the_fold(k, r"st\.shared\.f32")).nth(0)
    k.op(r"setp\.eq\.s32").text(", 0$").after(written).read_by(k.op("bra")).nth(0).rewrite(
        lambda o: ALWAYS.format(o[0]))


@mutant(DECODE, on=[k4v2(64, 1)], case="long/k4v2/d64_g1_splits34", expect=failed("out"))
def maximum_of_the_first_32_partials_forgotten(k):
    """The maximum of the first 32 partials is not carried into the next 32."""
    in_the_fold(k, r"max\.f32").reading(k.copies(in_the_fold(k, r"shfl\.sync\.idx\.b32"))).rewrite(
        lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(DECODE, on=[k4v2(128, 1), int2(64, 2)], case="folded", expect=failed("out"))
def partials_merged_the_other_way(k):
    """A partial is merged as fma(o2, b, o1 * a) instead of fma(o1, a, o2 * b)."""
    k.declare(".reg .f32 %mutant;")
    products = {o[0]: o for o in k.operands(k.op(r"mul\.rn\.f32").reading(k.loads_through("partials")))}
    k.op(r"fma\.rn\.f32").reading(k.op(r"mul\.rn\.f32").reading(k.loads_through("partials"))).rewrite(
        lambda o: f"mul.rn.f32 %mutant, {o[1]}, {o[2]};\n"
                  f"\tfma.rn.f32 {o[0]}, {products[o[3]][1]}, {products[o[3]][2]}, %mutant;")


@mutant(DECODE, on=[k4v2(128, 1), int2(64, 2)], case="folded", expect=failed("out"))
def last_arriver_miscounts(k):
    """Nobody believes to be the last CTA of a head, so nobody folds the partials."""
    k.op(r"add\.[su]32").reading(k.op(r"atom\..*")).append(lambda o: f"add.s32 {o[0]}, {o[0]}, -1;")


@mutant(DECODE, on=[int2(64, 3)], case=f"minikv-2bit/{TRACE_LAYER}", expect=failed("workspace tickets"))
def ticket_not_reset(k):
    """The last CTA leaves its ticket behind: the next launch would never complete a head."""
    k.op(r"st\.global\.[ub]32").at(k.derived(k.param("tickets"))).after(k.op(r"atom\..*")).drop()


# Synchronisation.

@mutant(DECODE, on=[k8v4(64, 3), int2(128, 4)], case="sharp", expect=failed("out"))
def page_not_waited_for(k):
    """The mbarrier of a page's stage is not waited for."""
    k.op(r"mbarrier\.try_wait.*").rewrite(lambda o: f"setp.eq.u32 {o[0]}, 0, 0;")


@mutant(DECODE, on=[k8v4(64, 3), k4v2(128, 7)], case="boundaries", expect=fault("deadlock"))
def parity_never_flips(k):
    """The ring wraps, but the wait keeps its parity."""
    k.op(r"mbarrier\.try_wait.*").edit(r", %r\d+;", ", 0;")


@mutant(DECODE, on=[k4v2(64, 2)], case="boundaries_noscores", expect=fault("deadlock"))
def too_many_bytes_expected(k):
    """The mbarrier expects 16 bytes more than the copy brings."""
    k.declare(".reg .b32 %mutant;")
    k.op(r"mbarrier\.arrive\.expect_tx.*").rewrite(
        lambda o: f"add.u32 %mutant, {o[2]}, 16;\n\tmbarrier.arrive.expect_tx.shared::cta.b64 _, {o[1]}, %mutant;")


@mutant(DECODE, on=[k8v4(64, 3), int2(128, 4)], case="boundaries", expect=failed("out"))
def merge_before_strands_are_written(k):
    """No barrier between the warps' writes of their strands and the merge that reads them."""
    k.op(BARRIER).after(k.op(r"st\.shared\.f32")).nth(0).drop()


@mutant(DECODE, on=[k4v2(128, 4)], case="boundaries", expect=failed("out"))
def strands_written_before_they_are_read(k):
    """No barrier before the next split's strands overwrite those of the last."""
    k.op(BARRIER).before(k.op(r"st\.shared\.f32").nth(0)).nth(-1).drop()


@mutant(DECODE, on=[k8v4(64, 3), int2(128, 4)], case="sharp", expect=failed("out"))
def queries_read_before_they_are_written(k):
    """No barrier between the warps' writes of the queries to shared memory and their reads."""
    k.op(BARRIER).after(k.op(r"st\.shared\.v2\.[bu]32")).nth(0).drop()


@mutant(DECODE, on=[int2(64, 3), k8v4(64, 3)], case="sharp", expect=failed("out"))
def factors_read_before_they_are_written(k):
    """No barrier between the factors of the fold and the threads that use them."""
    k.op(BARRIER).after(in_the_fold(k, r"st\.shared\.f32")).nth(0).drop()
