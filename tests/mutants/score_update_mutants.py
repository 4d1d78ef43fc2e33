"""Mutants of the score update. Logits are subtracted query head by query head, four tokens of a lane each."""
from mutant import any_format, exchange_fields, failed, move_address, mutant, off_by_one

SCORE_UPDATE = "score_update"
CASE = "mixed"
SHUFFLE = r"shfl\.sync\.idx\.b32"
LANE_TOKENS = 4


def on(*ratios):
    return [any_format(ratio) for ratio in ratios]


def tokens_left(k):
    """Tokens of the head from the warp's first on."""
    return k.op(r"sub\.s64").reading(k.loads_through("num_tokens"))


def sums(k):
    """running + P, one a token of the lane."""
    return k.op(r"add\.rn\.f32")


def maxima(k):
    return k.op(r"max\.f32")


def of_lane_0(shuffles):
    shuffles.rewrite(lambda o: f"shfl.sync.idx.b32 {o[0]}, {o[1]}, 0, {o[3]}, {o[4]};")


# Tokens and rows.

@mutant(SCORE_UPDATE, on=on(1, 3, 8), case=CASE, expect=failed("running"))
def tail_written_one_token_further(k):
    """The token behind a head's end is written."""
    off_by_one(k.op(r"setp\.(le|lt|ge|gt)\.s64").reading(tokens_left(k)).after(sums(k)))


@mutant(SCORE_UPDATE, on=on(2, 5, 7), case=CASE, expect=failed("running"))
def head_one_token_longer(k):
    """The token behind a head's end is updated like the others: its logits are read, its sum is written."""
    tokens_left(k).append(lambda o: f"add.s64 {o[0]}, {o[0]}, 1;")


@mutant(SCORE_UPDATE, on=on(4, 6), case=CASE, expect=failed("running"))
def whole_tile_of_127(k):
    """A warp with 127 tokens left takes 128."""
    k.op(r"setp\.gt\.s64").reading(tokens_left(k)).text(", 127$").edit(", 127;", ", 126;")


@mutant(SCORE_UPDATE, on=on(1, 6), case=CASE, expect=failed("running"))
def last_token_alone_left_out(k):
    """A warp with a single token left returns."""
    off_by_one(k.op(r"setp\.lt\.s64").reading(tokens_left(k)).text(", 1$"))


@mutant(SCORE_UPDATE, on=on(3, 4), case=CASE, expect=failed("running"))
def first_token_of_a_row_skipped(k):
    """Token 0 of a head keeps its significance."""
    first = k.operands(tokens_left(k))[0][2]
    lane = k.operands(k.op(r"and\.b32").text(", 31$").nth(0))[0][0]
    k.declare(".reg .pred %mutant;\n\t.reg .b64 %mutant_token;")
    sums(k).nth(0).append(
        lambda o: f"cvt.u64.u32 %mutant_token, {lane};\n\tadd.s64 %mutant_token, %mutant_token, {first};\n"
                  f"\tsetp.eq.s64 %mutant, %mutant_token, 0;\n\t@%mutant mov.f32 {o[0]}, {o[1]};")


@mutant(SCORE_UPDATE, on=on(2, 7), case=CASE, expect=failed("running"))
def length_of_the_head_before(k):
    """A head is as long as the one before."""
    move_address(k.loads_through("num_tokens"), -4)


@mutant(SCORE_UPDATE, on=on(5, 8), case=CASE, expect=failed("running"))
def rows_of_running_as_long_as_those_of_scores(k):
    """Rows of the running significance stand score_capacity apart."""
    exchange_fields(k, "running_capacity", "score_capacity")


@mutant(SCORE_UPDATE, on=on(1, 6), case=CASE, expect=failed("running"))
def rows_of_scores_as_long_as_those_of_running(k):
    """Rows of logits stand running_capacity apart."""
    exchange_fields(k, "score_capacity", "running_capacity")


@mutant(SCORE_UPDATE, on=on(3, 5, 7), case=CASE, expect=failed("running"))
def vectors_not_dealt_out(k):
    """A lane reads its vectors of logits from where its first one was put."""
    k.op(r"mad\.lo\.s32").read_by(k.op(r"ld\.shared\.v4\..*")).rewrite(lambda o: f"mov.u32 {o[0]}, {o[3]};")


# Query heads.

@mutant(SCORE_UPDATE, on=on(2, 8), case=CASE, expect=failed("running"))
def maximum_of_logits(k):
    """The group maximum is that of the logits; the first query head's m and l make it a probability."""
    subtractions = k.op(r"sub\.rn\.f32")
    logits = [o[1] for o in k.operands(subtractions)]
    largest = "\n\t".join(f"max.f32 {logits[i % LANE_TOKENS]}, {logits[i % LANE_TOKENS]}, {logits[i]};"
                          for i in range(LANE_TOKENS, len(logits)))
    maxima(k).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")
    subtractions.nth(0).prepend(lambda o: largest)


@mutant(SCORE_UPDATE, on=on(2, 5), case=CASE, expect=failed("running"))
def maximum_of_one_head_for_all(k):
    """All logits of a group are seen from the m of its first query head."""
    of_lane_0(k.op(SHUFFLE).reading(k.copies(k.loads_through("state"))).not_reading(k.copies(k.op(r"div\.rn\.f32"))))


@mutant(SCORE_UPDATE, on=on(3, 8), case=CASE, expect=failed("running"))
def sum_of_one_head_for_all(k):
    """All probabilities of a group are divided by the l of its first query head."""
    of_lane_0(k.op(SHUFFLE).reading(k.copies(k.op(r"div\.rn\.f32"))))


@mutant(SCORE_UPDATE, on=on(1, 4), case=CASE, expect=failed("running"))
def state_of_the_next_head(k):
    """m and l are those of the next query head."""
    move_address(k.loads_through("state"), 8)


@mutant(SCORE_UPDATE, on=on(2, 4, 7), case=CASE, expect=failed("running"))
def last_query_head_dropped(k):
    """The last query head of a group has no say."""
    maxima(k).read_by(sums(k)).rewrite(lambda o: f"mov.f32 {o[0]}, {o[1]};")


@mutant(SCORE_UPDATE, on=on(6, 8), case=CASE, expect=failed("running"))
def smallest_probability(k):
    """The group minimum, not the maximum."""
    maxima(k).edit(r"max\.f32", "min.f32")


@mutant(SCORE_UPDATE, on=on(2, 3), case=CASE, expect=failed("running", "nan"))
def group_maximum_takes_nan(k):
    """A probability that is NaN makes the maximum NaN; the contract's maximum ignores it."""
    maxima(k).edit(r"max\.f32", "max.NaN.f32")


# Arithmetic.

@mutant(SCORE_UPDATE, on=on(1, 2, 3, 4, 5, 6, 7, 8), case=CASE, expect=failed("running"))
def division_in_the_token(k):
    """div(e, l) for mul(e, div(1, l))."""
    k.op(r"div\.rn\.f32").rewrite(lambda o: f"mov.f32 {o[0]}, {o[2]};")
    k.op(r"mul\.rn\.f32").edit(r"mul\.rn", "div.rn")


@mutant(SCORE_UPDATE, on=on(1, 7), case=CASE, expect=failed("running"))
def quotient_flushed(k):
    """Quotients below 2^-126 become 0."""
    k.op(r"div\.rn\.f32").edit(r"div\.rn\.f32", "div.rn.ftz.f32")


@mutant(SCORE_UPDATE, on=on(5, 6), case=CASE, expect=failed("running"))
def running_overwritten(k):
    """The step's probability replaces what was summed before."""
    sums(k).rewrite(lambda o: f"mov.f32 {o[0]}, {o[2]};")


@mutant(SCORE_UPDATE, on=on(1, 8), case=CASE, expect=failed("running", "sign of zero"))
def zeros_not_added(k):
    """A token without probability keeps its significance, -0 too."""
    k.declare(".reg .pred %mutant;")
    sums(k).append(lambda o: f"setp.eq.f32 %mutant, {o[2]}, 0f00000000;\n\t@%mutant mov.f32 {o[0]}, {o[1]};")
