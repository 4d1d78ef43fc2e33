"""Mutants of gather + quantize + pack: what the list of rows adds to the kernels of quantize_mutants.py."""
from mutant import exchange_fields, failed, fault, int2, k4v2, k8v4, mutant
from quantize_mutants import first_touches

GATHER = "gather_quantize"


def listed_rows(k):
    """The loads of a lane's entry of the list."""
    return k.loads_through("selected")


@mutant(GATHER, on=[k8v4(64), k4v2(128), int2(128)], case="repeated", expect=failed("pages"))
def row_behind_the_listed_one(k):
    """The index of a source row is too large by one."""
    listed_rows(k).append(lambda o: f"add.s32 {o[0]}, {o[0]}, 1;")


@mutant(GATHER, on=[k8v4(128), k4v2(64), int2(64)], case="random", expect=failed("pages", "code"))
def row_of_the_first_lane(k):
    """All rows of a unit are the one that lane 0 has from the list."""
    k.op(r"shfl\.sync\.idx\.b32").reading(listed_rows(k)).rewrite(
        lambda o: f"shfl.sync.idx.b32 {o[0]}, {o[1]}, 0, {o[3]}, {o[4]};")


@mutant(GATHER, on=[k8v4(64), int2(64)], case="strided", expect=failed("pages"))
def lists_at_the_stride_of_the_page_table(k):
    """A head's list is looked for max_pages, not max_selected entries behind the one before."""
    exchange_fields(k, "max_selected", "max_pages")


@mutant(GATHER, on=[k4v2(128), int2(64)], case="random", expect=fault("out-of-bounds"))
def list_counted_from_the_cache_begin(k):
    """The entry of a token is its number in the cache, not in the appended range."""
    first = k.copies(k.loads_through("first_token"))
    k.op(r"sub\.s64").reading(first).rewrite(lambda o: f"mov.u64 {o[0]}, {o[1]};")


@mutant(GATHER, on=[k8v4(128), k4v2(64), int2(128)], case="reversed", expect=failed("pages"))
def slots_behind_the_end_get_a_row(k):
    """Slots of a fresh page behind the list's end get the codes of a row, not zero bytes."""
    k.op(r"cp\.async\.cg\..*").text(r", %r\d+$").edit(r", %r\d+;", ", 16;")


@mutant(GATHER, on=[k8v4(64), k4v2(128), int2(64)], case="strided", expect=failed("pages", "padding"))
def first_touch_leaves_old_bytes(k):
    """Slots of a fresh page behind the list's end keep what was there before."""
    first_touches(k).edit(r", [01];", ", -1000;")
