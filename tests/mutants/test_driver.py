#!/usr/bin/env python3
"""Tests of the mutant driver itself: a survivor, a lost anchor, a wrong expectation and a broken control fail.

    test_driver.py --kvproof build/default/bin/kvproof --ptx build/default/gpu/kernels
"""
import argparse
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import decode_mutants  # noqa: E402,F401
import quantize_mutants  # noqa: E402
import score_update_mutants  # noqa: E402,F401
import mutant as definitions  # noqa: E402
import ptx  # noqa: E402
import run_mutants  # noqa: E402

FIELDS = {"a": 0, "n": 8, "b": 16}
MODULE = """.version 9.0
.visible .entry first_kernel(
)
{
\tret;
}
.visible .entry second_kernel(
\t.param .align 8 .b8 second_kernel_param_0[24]
)
{
\t.reg .b32 %r<9>;
\tmov.b64 \t%rd1, second_kernel_param_0;
\tadd.s64 \t%rd2, %rd1, 16;
\tld.param.u64 \t%rd3, [%rd2+-16];
\tld.param.v2.u32 \t{%r1, %r2}, [%rd2+-8];
\tld.param.u64 \t%rd4, [%rd2];
\tshl.b64 \t%rd5, %rd4, 2;
\tadd.s64 \t%rd6, %rd3, %rd5;
\tld.global.u32 \t%r3, [%rd6+4];
\tld.global.u32 \t%r4, [%rd3];
\tmov.u32 \t%r5, %r3;
\t{  cvt.f32.f16 %f1, %rs1;}
\tsetp.lt.s32 \t%p1, %r4, %r5;
\t@%p1 bra \t$L_1;
\tfma.rn.f32 \t%f2, %f1, %f1, %f3;
\tst.global.f32 \t[%rd6], %f2;
$L_1:
\tret;
}
"""


def kernel():
    return ptx.read_entry(MODULE, "second_kernel", FIELDS)


def lines_of(selection):
    return [selection.kernel.lines[i.number].strip().replace("\t", "") for i in selection.chosen]


class Reading(unittest.TestCase):
    def test_only_the_entry_asked_for_is_kept(self):
        text = kernel().text()
        self.assertIn(".version 9.0", text)
        self.assertIn("second_kernel", text)
        self.assertNotIn("first_kernel", text)
        self.assertIsNone(ptx.read_entry(MODULE, "second", FIELDS))

    def test_parameters_are_found_through_offsets_from_a_copied_base(self):
        k = kernel()
        self.assertEqual(lines_of(k.param("a")), ["ld.param.u64 %rd3, [%rd2+-16];"])
        self.assertEqual([i.writes for i in k.param("n").chosen], [{"%r1"}])
        self.assertEqual(lines_of(k.param("b")), ["ld.param.u64 %rd4, [%rd2];"])

    def test_loads_are_found_through_address_arithmetic(self):
        k = kernel()
        self.assertEqual(lines_of(k.loads_through("b")), ["ld.global.u32 %r3, [%rd6+4];"])
        self.assertEqual(len(k.loads_through("a").chosen), 2)

    def test_copies_are_followed_by_reads(self):
        k = kernel()
        self.assertEqual(len(k.op(r"setp\..*").reading(k.copies(k.loads_through("b"))).chosen), 1)
        self.assertEqual(len(k.op(r"setp\..*").reading(k.loads_through("b")).chosen), 0)

    def test_guards_count_as_reads_of_a_user(self):
        k = kernel()
        self.assertEqual(len(k.op(r"setp\..*").read_by(k.op("bra")).chosen), 1)

    def test_stores_write_no_register(self):
        self.assertEqual([i.writes for i in kernel().op(r"st\..*").chosen], [set()])

    def test_braces_around_a_statement(self):
        self.assertEqual([i.writes for i in kernel().op(r"cvt\.f32\.f16").chosen], [{"%f1"}])

    def test_statements_without_operands_are_instructions(self):
        self.assertEqual(lines_of(kernel().op("ret")), ["ret;"])

    def test_neighbours_in_the_order_of_the_text(self):
        k = kernel()
        self.assertEqual(lines_of(k.op(r"ld\..*").nearest_before(k.op(r"setp\..*"))), ["ld.global.u32 %r4, [%rd3];"])
        self.assertEqual(lines_of(k.op(r"ld\..*").nearest_after(k.op(r"shl\..*"))), ["ld.global.u32 %r3, [%rd6+4];"])
        self.assertEqual(k.op(r"ld\..*").nearest_after(k.op("ret")).chosen, [])

    def test_operands_split_at_top_level_only(self):
        self.assertEqual(ptx.split_operands("{%f1, %f2}, [%r1+4], %r2|%p1"), ["{%f1, %f2}", "[%r1+4]", "%r2|%p1"])

    def test_fields_follow_the_rules_of_alignment(self):
        header = "struct p {\n  const int* a;  // x; y\n  unsigned char* b;\n  std::int32_t c;\n" \
                 "  std::int64_t d, e;\n  float f;\n};\n"
        self.assertEqual(ptx.read_fields(header, "p"), {"a": 0, "b": 8, "c": 16, "d": 24, "e": 32, "f": 40})


class Editing(unittest.TestCase):
    def test_an_empty_selection_raises_and_says_what_was_sought(self):
        with self.assertRaisesRegex(ptx.AnchorLost, "second_kernel, opcode ex2"):
            kernel().op("ex2.*").drop()

    def test_an_edit_without_effect_raises(self):
        with self.assertRaisesRegex(ptx.AnchorLost, "setp.lt"):
            kernel().op(r"setp\..*").edit("gt", "le")

    def test_addresses_move_with_and_without_an_offset(self):
        k = kernel()
        definitions.move_address(k.op(r"ld\.global\..*"), 8)
        self.assertIn("[%rd6+12]", k.text())
        self.assertIn("[%rd3+8]", k.text())

    def test_comparisons_change_sides(self):
        k = kernel()
        definitions.off_by_one(k.op(r"setp\..*"))
        self.assertIn("setp.le.s32", k.text())


class Tables(unittest.TestCase):
    def test_every_format_and_head_dim_has_mutants_of_both_roles(self):
        for role in ("decode", "quantize"):
            met = {(t.format, t.head_dim) for m in definitions.ALL if m.role == role for t in m.targets}
            self.assertEqual(met, {(f, d) for f in ("int2_g16", "k8v4", "k4v2") for d in (64, 128)})

    def test_every_ratio_of_the_score_update_has_mutants(self):
        met = {t.ratio for m in definitions.ALL if m.role == "score_update" for t in m.targets}
        self.assertEqual(met, set(range(1, 9)))

    def test_names_are_unique(self):
        names = [m.name for m in definitions.ALL]
        self.assertEqual(len(names), len(set(names)))


class Driving(unittest.TestCase):
    """With the built kernels; one quick case."""

    def outcome(self, edit, expect, case="normal_pieces144", target=definitions.k8v4(64)):
        m = definitions.Mutant("candidate", "A bug.", "quantize", (target,), case, expect, edit)
        lines = []
        code = run_mutants.run_all(OPTIONS, MODULES, [m], lines.append)
        return code, "\n".join(lines)

    @staticmethod
    def truncate(k):
        quantize_mutants.round_by(k, "rzi", "0f00000000")

    def test_a_killed_mutant_is_good(self):
        code, text = self.outcome(self.truncate, definitions.failed("pages"))
        self.assertEqual(code, 0, text)

    def test_a_survivor_fails(self):
        code, text = self.outcome(lambda k: k.declare(".reg .b32 %unused;"), definitions.failed("pages"))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"BAD  candidate .* PASSED\n.*expected FAILED.*A bug")

    def test_another_tensor_than_expected_fails(self):
        code, text = self.outcome(self.truncate, definitions.failed("out"))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"BAD  candidate .* FAILED\n")

    def test_a_fault_for_a_difference_fails(self):
        self.assertEqual(self.outcome(self.truncate, definitions.fault("out-of-bounds"))[0], 1)

    def test_a_lost_anchor_fails_and_says_where_to_look(self):
        code, text = self.outcome(lambda k: k.op("tanh.*").drop(), definitions.failed("pages"))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"LOST\n     A bug\. Nothing in the PTX is: .*opcode tanh.*quantize_mutants\.py")

    def test_an_edit_that_stumbles_is_lost(self):
        code, text = self.outcome(lambda k: k.op("ret").rewrite(lambda o: o[7]), definitions.failed("pages"))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"LOST\n     A bug\. .*IndexError")

    def test_an_edit_that_changes_nothing_fails(self):
        self.assertEqual(self.outcome(lambda k: None, definitions.failed("pages"))[0], 1)

    def test_text_that_is_no_ptx_is_not_a_killed_mutant(self):
        code, text = self.outcome(lambda k: k.op("ret").nth(0).rewrite(lambda o: "no_such_opcode %r1;"),
                                  definitions.failed("pages"))
        self.assertEqual(code, 1, text)

    def test_a_case_that_does_not_exist_fails_the_control(self):
        code, text = self.outcome(self.truncate, definitions.failed("pages"), case="normal_pieces145")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"BAD  \(unmutated\)")

    def test_a_case_of_another_kernel_fails_the_control(self):
        code, text = self.outcome(self.truncate, definitions.failed("pages"),
                                  case="quantize/k4v2/d64_normal_pieces144")
        self.assertEqual(code, 1)
        self.assertRegex(text, r"BAD  \(unmutated\) .* NOT RUN")

    def test_a_kernel_that_was_not_built_is_lost(self):
        code, text = self.outcome(self.truncate, definitions.failed("pages"), target=definitions.Target("k2v1", 64, 0))
        self.assertEqual(code, 1)
        self.assertRegex(text, r"BAD  \(unmutated\) .*quantize_k2v1_d64_kernel +LOST")
        self.assertRegex(text, r"BAD  candidate .* LOST")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--kvproof", required=True)
    parser.add_argument("--ptx", required=True)
    given, rest = parser.parse_known_args()
    OPTIONS = run_mutants.parse(["quantize", "--kvproof", given.kvproof, "--ptx", given.ptx, "--jobs", "2"])
    MODULES = run_mutants.Modules(OPTIONS.ptx, OPTIONS.params)
    unittest.main(argv=[sys.argv[0], *rest])
