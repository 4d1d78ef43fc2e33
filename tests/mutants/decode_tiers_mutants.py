"""Mutants of decode attention over two tiers: bugs that the kernels of one format cannot have. Pages of the low tier
stand at the end of a row of the page table, backwards; its splits come after those of the high tier."""
from mutant import failed, fault, mutant, tiers

DECODE_TIERS = "decode_tiers"
TRY_WAIT = r"mbarrier\.try_wait.*"
NO_PAGE = "past the end|no allocation|before the"
LENGTHS = {"high": "num_quantized", "low": "num_low"}


def loads(k, tier):
    return k.loads_through(LENGTHS[tier])


def length(k, tier):
    """The register with the length of a tier of the head whose pages are visited."""
    return k.operands(k.op(r"setp\.le\.s32").reading(loads(k, tier)).after(k.op(TRY_WAIT)))[0][2]


def max_pages_less_a_page(k):
    """max_pages - 1 - page of the low tier."""
    return k.op(r"add\.s32").reading(k.copies(k.param("max_pages")))


def second_pages(k, comparison):
    """Comparisons of the first token of a block's second page with the length of the high tier."""
    return k.op(comparison).reading(k.op(r"or\.b32").text(", 32$")).reading(loads(k, "high"))


# Pages.

@mutant(DECODE_TIERS, on=[tiers(64, 3), tiers(128, 4)], case="boundaries", expect=fault(NO_PAGE))
def low_pages_one_entry_further(k):
    """Page j of the low tier is entry max_pages - j."""
    max_pages_less_a_page(k).append(lambda o: f"add.s32 {o[0]}, {o[0]}, 1;")


@mutant(DECODE_TIERS, on=[tiers(64, 8), tiers(128, 5)], case="boundaries", expect=fault(NO_PAGE))
def low_pages_one_entry_nearer(k):
    """Page j of the low tier is entry max_pages - 2 - j."""
    max_pages_less_a_page(k).append(lambda o: f"add.s32 {o[0]}, {o[0]}, -1;")


@mutant(DECODE_TIERS, on=[tiers(64, 1), tiers(128, 7)], case="boundaries", expect=failed("out"))
def low_page_copied_as_a_high_one(k):
    """Of a low page as many bytes are copied as a K8V4 page has: the scales of its last tokens stay behind."""
    k.op(r"selp\.b32").text(", 3328, 3584, |, 6400, 6656, ").rewrite(lambda o: f"mov.u32 {o[0]}, {o[1]};")


@mutant(DECODE_TIERS, on=[tiers(64, 5), tiers(128, 1)], case="boundaries", expect=failed("out"))
def pages_by_their_content(k):
    """Pages stand as far apart in the pool as the content of a K8V4 page is long."""
    k.op(r"mul\.wide\.s32").text(r", (3584|6656)$").edit(
        r", (3584|6656);", lambda m: {"3584": ", 3328;", "6656": ", 6400;"}[m[1]])


@mutant(DECODE_TIERS, on=[tiers(64, 3), tiers(128, 5)], case="boundaries", expect=fault("deadlock"))
def missing_page_waited_for(k):
    """A block of the high tier that ends in its first page is waited for as if it had two."""
    second_pages(k, r"setp\.lt\.s32").rewrite(lambda o: f"setp.eq.u32 {o[0]}, 0, 0;")


@mutant(DECODE_TIERS, on=[tiers(64, 7), tiers(128, 3)], case="boundaries", expect=fault(NO_PAGE))
def missing_page_read(k):
    """A block of the high tier that ends in its first page has a second one, whatever the table holds there."""
    second_pages(k, r"setp\.lt\.s32").rewrite(lambda o: f"setp.eq.u32 {o[0]}, 0, 0;")
    second_pages(k, r"setp\.ge\.s32").rewrite(lambda o: f"setp.ne.u32 {o[0]}, 0, 0;")


# Lengths, positions and order.

@mutant(DECODE_TIERS, on=[tiers(64, 3), tiers(128, 6)], case="boundaries", expect=failed("out"))
def low_tier_ends_where_the_high_one_does(k):
    """Slots behind the end of the low tier are found with the length of the high tier."""
    high, low = length(k, "high"), length(k, "low")
    k.op(r"setp\.(lt|le)\.s32").text(rf", {low}$").after(k.op(TRY_WAIT)).edit(rf"{low};", f"{high};")


@mutant(DECODE_TIERS, on=[tiers(64, 4), tiers(128, 4)], case="boundaries", expect=failed("scores"))
def low_scores_from_position_0(k):
    """Scores of the low tier are written from position 0 on, over those of the high tier."""
    high, low = length(k, "high"), length(k, "low")
    with_high = k.op(r"add\.s32").text(rf", (%r\d+, {high}|{high}, %r\d+)$").not_reading(loads(k, "low"))
    with_high.after(k.op(TRY_WAIT)).rewrite(lambda o: f"mov.u32 {o[0]}, {o[2] if o[1] == high else o[1]};")


@mutant(DECODE_TIERS, on=[tiers(64, 8), tiers(128, 3)], case="boundaries", expect=failed("scores"))
def recent_scores_behind_the_high_tier(k):
    """Scores of the recent part are written from the end of the high tier on, over those of the low one."""
    high, low = length(k, "high"), length(k, "low")
    k.op(r"add\.s32").text(rf", ({low}, {high}|{high}, {low})$").rewrite(lambda o: f"mov.u32 {o[0]}, {high};")


@mutant(DECODE_TIERS, on=[tiers(64, 2), tiers(128, 1)], case="folded", expect=failed("out"))
def low_splits_as_long_as_the_whole_cache_says(k):
    """The low tier is cut by the length of both tiers together: into splits of 2048 tokens where it has 8192."""
    k.declare(".reg .b32 %mutant;")
    lows = k.op(r"setp\.lt\.s32").text(", 8193$").reading(k.copies(loads(k, "low")))
    for n in range(len(lows.require())):
        one = lows.nth(n)
        high = k.operands(loads(k, "high").nearest_before(one))[0][0]
        one.rewrite(lambda o: f"add.s32 %mutant, {o[1]}, {high};\n\tsetp.lt.s32 {o[0]}, %mutant, 8193;")


@mutant(DECODE_TIERS, on=[tiers(64, 2), tiers(128, 1)], case="folded", expect=failed("out"))
def low_splits_before_high_splits(k):
    """Partials of the low tier's splits stand, and are folded, before those of the high tier."""
    ratio, head_dim = (2, 64) if "_d64_g2_" in k.name else (1, 128)
    partial_floats = (ratio * (head_dim + 2) + 3) // 4 * 4
    place = k.op(r"cvt\.s64\.s32").reading(k.op(r"add\.s32").in_place().text(", 1$")).read_by(
        k.op(r"add\.s64").read_by(k.op(r"mul\.lo\.s64").text(rf", {partial_floats}$")))
    split = k.operands(place)[0][1]
    of_split = k.op(r"setp\.(lt|ge)\.s32").text(rf", {split}, %r\d+$")
    high_splits = k.operands(of_split.op(r"setp\.lt.*"))[0][2]
    page_splits = k.operands(of_split.op(r"setp\.ge.*"))[0][2]
    k.declare(".reg .b32 %mutant, %mutant_low;\n\t.reg .pred %mutant_is_high, %mutant_is_page;")
    place.rewrite(lambda o: f"""setp.lt.s32 %mutant_is_high, {split}, {high_splits};
	setp.lt.s32 %mutant_is_page, {split}, {page_splits};
	sub.s32 %mutant_low, {page_splits}, {high_splits};
	add.s32 %mutant_low, {split}, %mutant_low;
	sub.s32 %mutant, {split}, {high_splits};
	selp.b32 %mutant, %mutant_low, %mutant, %mutant_is_high;
	selp.b32 %mutant, %mutant, {split}, %mutant_is_page;
	cvt.s64.s32 {o[0]}, %mutant;""")


@mutant(DECODE_TIERS, on=[tiers(64, 3), tiers(128, 4)], case="sharp", expect=failed("out"))
def low_tier_left_out(k):
    """The low tier is not attended."""
    loads(k, "low").append(lambda o: f"mov.u32 {o[0]}, 0;")


@mutant(DECODE_TIERS, on=[tiers(64, 3), tiers(128, 4)], case="drift", expect=failed("out"))
def low_values_centred_like_high_ones(k):
    """Values of the low tier are centred by 7.5, the middle of 4 bits, in the end, by 1.5 before."""
    k.op(r"mov\.f32").text("0fBFC00000").edit("0fBFC00000", "0fC0F00000")
