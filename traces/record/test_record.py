#!/usr/bin/env python3
"""Tests of the recorder and of the shipped trace: python3 traces/record/test_record.py

numpy and h5py are enough, Debian's too. Tests that need gguf, or h5py where it is missing, are
skipped, and say so; without numpy the exit code is 77 (skipped).
"""

import hashlib
import importlib.util
import sys
import tempfile
import time
import unittest
from fractions import Fraction
from pathlib import Path

try:
    import numpy as np
except ModuleNotFoundError:
    print("SKIPPED: numpy is not installed; no test of the recorder ran", file=sys.stderr)
    sys.exit(77)

sys.path.insert(0, str(Path(__file__).parent))

import bpe
import llama

HAVE_H5PY = importlib.util.find_spec("h5py") is not None
HAVE_GGUF = importlib.util.find_spec("gguf") is not None
DATA = Path(__file__).parent.parent / "data"
SHIPPED = DATA / "smollm2-135m-instruct.h5"

if HAVE_H5PY:
    import h5py

    import trace_file


def round_to_half_exactly(value: float) -> float:
    """fp16 rounding by rational arithmetic on the value, independent of numpy's."""
    exact = Fraction(value)
    if exact == 0:
        return value
    exponent = -14
    while Fraction(2) ** (exponent + 1) <= abs(exact):
        exponent += 1
    quantum = Fraction(2) ** (exponent - 10)
    return float(round(exact / quantum) * quantum)  # Fraction rounds ties to even


class HalfRounding(unittest.TestCase):
    def test_every_half_survives(self) -> None:
        halves = np.arange(0x10000, dtype=np.uint16).view(np.float16)
        finite = halves[np.isfinite(halves)]
        back = llama.to_half(finite.astype(np.float64))
        np.testing.assert_array_equal(back.view(np.uint16), finite.view(np.uint16))

    def test_midpoints_and_their_neighbours(self) -> None:
        """Ties go to even; just below a power of two rounds up to it, not to half of it."""
        lower = np.arange(0x7BFF, dtype=np.uint16)
        values = lower.view(np.float16).astype(np.float64)
        upper = (lower + 1).view(np.float16).astype(np.float64)
        middle = (values + upper) / 2
        even = lower + (lower & 1)
        for inputs, wanted in (
            (middle, even),
            (np.nextafter(middle, 0), lower),
            (np.nextafter(middle, np.inf), lower + 1),
        ):
            np.testing.assert_array_equal(llama.to_half(inputs).view(np.uint16), wanted)
            np.testing.assert_array_equal(llama.to_half(-inputs).view(np.uint16), wanted | 0x8000)

    def test_against_rational_arithmetic(self) -> None:
        generator = np.random.default_rng(1)
        scales = 2.0 ** generator.integers(-26, 15, size=2000)
        for value in generator.standard_normal(2000) * scales:
            self.assertEqual(float(llama.to_half(np.float64(value))), round_to_half_exactly(value))

    def test_below_powers_of_two(self) -> None:
        for exponent in range(-14, 16):
            value = np.nextafter(np.float32(2.0**exponent), np.float32(0))
            self.assertEqual(float(llama.to_half(np.float64(value))), 2.0**exponent)

    def test_too_large_is_refused(self) -> None:
        self.assertEqual(float(llama.to_half(np.float64(65519.9))), 65504.0)
        for value in (65520.0, np.inf, np.nan):
            with self.assertRaises(OverflowError), np.errstate(over="ignore"):
                llama.to_half(np.array([0.0, value]))

    def test_is_little_endian(self) -> None:
        self.assertEqual(llama.to_half(np.array([1.0])).tobytes(), b"\x00\x3c")


class Arithmetic(unittest.TestCase):
    def test_rms_norm(self) -> None:
        x = np.array([[3.0, 4.0], [0.0, 0.0]])
        found = llama.rms_norm(x, np.array([1.0, 2.0]), 0.5)
        wanted = [[3 / np.sqrt(13.0), 8 / np.sqrt(13.0)], [0, 0]]
        np.testing.assert_allclose(found, wanted, rtol=1e-15)

    def test_rope_rotates_adjacent_pairs(self) -> None:
        x = np.zeros((3, 1, 4))
        x[:, 0, 0] = 1.0
        x[:, 0, 3] = 1.0
        found = llama.rope(x, np.array([0, 1, 7]), 100.0)  # frequencies 1 and 1/10
        for row, position in enumerate((0, 1, 7)):
            slow = position / 10
            wanted = [np.cos(position), np.sin(position), -np.sin(slow), np.cos(slow)]
            np.testing.assert_allclose(found[row, 0], wanted, rtol=1e-15)

    def test_rope_dot_product_depends_on_distance_only(self) -> None:
        generator = np.random.default_rng(2)
        q, k = generator.standard_normal((2, 1, 1, 64))

        def product(at_q: int, at_k: int) -> float:
            turned = llama.rope(q, np.array([at_q]), 1e5) * llama.rope(k, np.array([at_k]), 1e5)
            return float(turned.sum())

        self.assertAlmostEqual(product(5, 3), product(605, 603), places=10)
        self.assertNotAlmostEqual(product(5, 3), product(5, 4), places=3)

    def test_swiglu(self) -> None:
        one = np.ones((1, 1))
        weights = llama.LayerWeights(*[one] * 6, ffn_gate=one * 2, ffn_up=one * 3, ffn_down=one * 5)
        found = llama.swiglu(np.array([[0.5]]), weights)
        np.testing.assert_allclose(found, [[1 / (1 + np.exp(-1)) * 1.5 * 5]], rtol=1e-15)


class Attention(unittest.TestCase):
    def setUp(self) -> None:
        generator = np.random.default_rng(3)
        self.q = generator.standard_normal((5, 6, 4)).astype("<f2")
        self.k = generator.standard_normal((5, 2, 4)).astype("<f2")
        self.v = generator.standard_normal((5, 2, 4)).astype("<f2")

    def test_equals_the_plain_loop(self) -> None:
        """Query head h reads KV head h // 3, and no token sees a later one."""
        found = llama.attention(self.q, self.k, self.v, 0.5)
        for token in range(5):
            for head in range(6):
                keys = self.k[: token + 1, head // 3].astype(np.float64)
                values = self.v[: token + 1, head // 3].astype(np.float64)
                weights = np.exp(keys @ self.q[token, head].astype(np.float64) * 0.5)
                np.testing.assert_allclose(
                    found[token, head], weights @ values / weights.sum(), rtol=1e-12
                )

    def test_decoding_equals_prefill(self) -> None:
        whole = llama.attention(self.q, self.k, self.v, 0.5)
        last = llama.attention(self.q[3:], self.k, self.v, 0.5)
        np.testing.assert_allclose(whole[3:], last, rtol=1e-12)


def tiny_model() -> tuple[llama.ModelConfig, llama.ModelWeights]:
    """2 layers, 4 query heads, 2 KV heads of 4 channels, 11 tokens."""
    generator = np.random.default_rng(4)

    def matrix(rows: int, columns: int) -> llama.Array:
        return generator.standard_normal((rows, columns)) / np.sqrt(columns)

    def layer() -> llama.LayerWeights:
        return llama.LayerWeights(
            np.ones(16),
            matrix(16, 16),
            matrix(8, 16),
            matrix(8, 16),
            matrix(16, 16),
            np.ones(16),
            matrix(24, 16),
            matrix(24, 16),
            matrix(16, 24),
        )

    config = llama.ModelConfig("tiny", 2, 4, 2, 4, 1e4, 1e-5)
    return config, llama.ModelWeights(matrix(11, 16), [layer(), layer()], np.ones(16))


class Session(unittest.TestCase):
    def test_cutting_the_sequence_changes_nothing(self) -> None:
        config, weights = tiny_model()
        whole, cut = llama.LlamaSession(config, weights), llama.LlamaSession(config, weights)
        ids = [3, 1, 4, 1, 5, 9, 2, 6]
        logits = whole.forward(ids)
        pieces = [cut.forward(ids[:5]), cut.forward(ids[5:6]), cut.forward(ids[6:])]
        np.testing.assert_allclose(np.concatenate(pieces), logits, rtol=1e-9)
        for layer in range(2):
            for ours, theirs in zip(whole.recorded(layer), cut.recorded(layer), strict=True):
                np.testing.assert_array_equal(ours, theirs)

    def test_greedy_choice_and_recorded_shapes(self) -> None:
        session = llama.LlamaSession(*tiny_model())
        ids, logits = llama.greedy_continuation(session, [3, 1, 4], 4)
        self.assertEqual(ids[:3], [3, 1, 4])
        self.assertEqual(ids[3:], [int(row.argmax()) for row in logits[2:-1]])
        self.assertEqual(
            [part.shape for part in session.recorded(1)], [(7, 4, 4), (7, 2, 4), (7, 2, 4)]
        )


class Tokenizer(unittest.TestCase):
    def toy(self) -> bpe.BpeTokenizer:
        merges = ["l o", "lo w", "Ġ low", "e r", "Ã ©"]
        tokens = sorted(bpe.byte_alphabet().values()) + [m.replace(" ", "") for m in merges]
        return bpe.BpeTokenizer(tokens, merges)

    def test_byte_alphabet_is_gpt2s(self) -> None:
        alphabet = bpe.byte_alphabet()
        self.assertEqual(len(set(alphabet.values())), 256)
        self.assertEqual([alphabet[byte] for byte in b" \nA\xad\x00"], list("ĠĊAŃĀ"))

    def test_merges_by_rank(self) -> None:
        tokenizer = self.toy()
        first = 256
        self.assertEqual(tokenizer.encode("low lower")[:2], [first + 1, first + 2])
        self.assertEqual(tokenizer.encode("low lower")[2:], [first + 3])
        self.assertEqual(tokenizer.encode("é"), [first + 4])

    def test_round_trip(self) -> None:
        tokenizer = self.toy()
        text = "low lower\n\n  é 日本 12.5\t'll x\u00a0y 🦆 \x00"
        self.assertEqual(tokenizer.decode(tokenizer.encode(text)), text)

    def test_pre_tokenizer(self) -> None:
        for text, words in (
            ("a  b", ["a", " ", " b"]),
            ("in 2024!", ["in", " ", "2", "0", "2", "4", "!"]),
            ("x1y", ["x", "1", "y"]),
            ("it's 'round", ["it", "'s", " '", "round"]),
            ("we'll, they'd", ["we", "'ll", ",", " they", "'d"]),
            ("a\n\n  b", ["a", "\n\n ", " b"]),
            ("end  ", ["end", "  "]),
            ("x = f(y);", ["x", " =", " f", "(", "y", ");"]),
            ("½ é_z", ["½", " é", "_", "z"]),
            ("", []),
        ):
            with self.subTest(text=text):
                self.assertEqual(bpe.pre_tokenize(text), words)


@unittest.skipUnless(HAVE_H5PY, "h5py is not installed: the file writer is not tested")
class TraceFile(unittest.TestCase):
    def tiny_trace(self, num_tokens: int) -> "trace_file.AttentionTrace":
        config, weights = tiny_model()
        session = llama.LlamaSession(config, weights)
        session.forward([3, 1, 4, 1, 5, 9, 2, 6])

        def cut(layer: int) -> list[llama.Half]:
            return [part[:num_tokens] for part in session.recorded(layer)]

        return trace_file.AttentionTrace(
            config,
            num_tokens // 2,
            [3, 1, 4, 1, 5, 9, 2, 6][:num_tokens],
            [trace_file.LayerTrace(layer, *cut(layer)) for layer in range(2)],
            "made up",
            "0BSD",
        )

    def written(self, trace: "trace_file.AttentionTrace", name: str) -> Path:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        path = Path(folder.name) / name
        trace_file.write_trace(path, trace)
        self.assertEqual(list(path.parent.iterdir()), [path])
        return path

    def test_bytes_depend_on_the_content_only(self) -> None:
        first = self.written(self.tiny_trace(8), "first.h5").read_bytes()
        time.sleep(1.1)  # HDF5 stores times, if it does, in seconds
        self.assertEqual(self.written(self.tiny_trace(8), "second.h5").read_bytes(), first)
        self.assertNotEqual(self.written(self.tiny_trace(7), "first.h5").read_bytes(), first)

    def test_content_survives(self) -> None:
        for num_tokens in (1, 7, 8):
            trace = self.tiny_trace(num_tokens)
            with h5py.File(self.written(trace, "trace.h5")) as file:
                self.assertEqual(list(file["token_ids"][()]), trace.token_ids)
                for layer in trace.layers:
                    for name in "qkv":
                        stored = file[f"layers/{layer.layer}/{name}"]
                        self.assertEqual(stored.dtype, np.dtype("<f2"))
                        self.assertTrue(stored.shuffle and stored.fletcher32)
                        np.testing.assert_array_equal(stored[()], getattr(layer, name))

    def test_all_metadata_are_under_checksums(self) -> None:
        """Superblock 3 is the sign of HDF5 1.10's; what still has none are heaps of strings."""
        path = self.written(self.tiny_trace(8), "trace.h5")
        self.assertEqual(path.read_bytes()[8], 3)
        for old in (b"GCOL", b"HEAP", b"TREE", b"SNOD"):
            self.assertNotIn(old, path.read_bytes())
        texts = []

        def collect(name: str, item: h5py.HLObject) -> None:
            for key in item.attrs:
                kind = item.attrs.get_id(key).get_type()
                if isinstance(kind, h5py.h5t.TypeStringID):
                    self.assertFalse(kind.is_variable_str(), f"{name} {key}")
                    texts.append(item.attrs[key])

        with h5py.File(path) as file:
            collect("/", file)
            file.visititems(collect)
        self.assertEqual(texts.count(b"float16"), 6)
        self.assertIn(b"made up", texts)

    def test_failure_leaves_nothing_behind(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            broken = self.tiny_trace(8)
            broken.layers.append(broken.layers[0])  # the same group twice
            with self.assertRaises(ValueError):
                trace_file.write_trace(Path(folder) / "trace.h5", broken)
            self.assertEqual(list(Path(folder).iterdir()), [])


@unittest.skipUnless(HAVE_H5PY, "h5py is not installed: the shipped trace is not tested")
class ShippedTrace(unittest.TestCase):
    def setUp(self) -> None:
        self.file = h5py.File(SHIPPED)
        self.addCleanup(self.file.close)

    def tensors(self, layer: int) -> list[llama.Half]:
        return [self.file[f"layers/{layer}/{name}"][()] for name in "qkv"]

    def test_is_the_documented_file(self) -> None:
        digest = hashlib.sha256(SHIPPED.read_bytes()).hexdigest()
        self.assertIn(digest, (DATA / "README.md").read_text(encoding="utf-8"))
        self.assertLessEqual(SHIPPED.stat().st_size, 8 << 20)
        self.assertEqual(SHIPPED.read_bytes()[8], 3)  # superblock

    def test_shapes(self) -> None:
        attributes = self.file.attrs
        self.assertEqual((attributes["num_tokens"], attributes["prompt_length"]), (640, 512))
        self.assertEqual(sorted(map(int, self.file["layers"])), [0, 9, 19, 29])
        for layer in (0, 9, 19, 29):
            q, k, v = self.tensors(layer)
            self.assertEqual(
                (q.shape, k.shape, v.shape), ((640, 9, 64), (640, 3, 64), (640, 3, 64))
            )
            self.assertTrue(all(np.isfinite(part).all() for part in (q, k, v)))

    def test_equal_tokens_have_equal_values_in_layer_0(self) -> None:
        """v of layer 0, and k turned back by its position, depend on the token alone."""
        _, k, v = self.tensors(0)
        theta = self.file.attrs["rope_theta"]
        unturned = llama.rope(k.astype(np.float64), -np.arange(640), theta)
        first: dict[int, int] = {}
        repeats = 0
        for at, token in enumerate(self.file["token_ids"][()]):
            seen = first.setdefault(int(token), at)
            repeats += seen != at
            np.testing.assert_array_equal(v[at], v[seen])
            np.testing.assert_allclose(unturned[at], unturned[seen], atol=2**-9 * np.abs(k).max())
        self.assertGreater(repeats, 200)

    def test_attention_is_a_distribution_with_a_sink(self) -> None:
        """Token 0 sees itself alone; deep layers park much of their attention on it."""
        scale = self.file.attrs["softmax_scale"]
        for layer in (0, 9, 19, 29):
            q, k, v = self.tensors(layer)
            weights = llama.attention_weights(q, k, scale)
            np.testing.assert_allclose(weights.sum(axis=-1), 1, rtol=1e-12)
            self.assertEqual(float(np.triu(weights, 1).max()), 0.0)
            out = llama.attention(q, k, v, scale)
            np.testing.assert_array_equal(out[0], np.repeat(v[0], 3, axis=0))
            if layer > 0:  # evenly spread, it would be 0.003
                self.assertGreater(weights[:, 64:, 0].mean(), 0.1)


@unittest.skipUnless(HAVE_H5PY, "h5py is not installed: arguments are not tested")
class Arguments(unittest.TestCase):
    def test_prompt_is_cut_or_refused(self) -> None:
        import record

        tokenizer = bpe.BpeTokenizer(sorted(bpe.byte_alphabet().values()), [])
        self.assertEqual(len(record.prompt_ids(tokenizer, "abc", 3)), 3)
        self.assertEqual(tokenizer.decode(record.prompt_ids(tokenizer, "abc", 2)), "ab")
        with self.assertRaises(record.UsageError):
            record.prompt_ids(tokenizer, "abc", 4)

    def test_layers_ascend_within_the_model(self) -> None:
        import record

        record.check_layers([0, 9, 29], 30)
        for layers in ([0, 30], [-1, 3], [3, 3], [4, 3]):
            with self.subTest(layers=layers), self.assertRaises(record.UsageError):
                record.check_layers(layers, 30)


@unittest.skipUnless(HAVE_GGUF, "gguf is not installed: quantized weights are not tested")
class Dequantization(unittest.TestCase):
    def test_q4_1_and_q8_0_blocks(self) -> None:
        import gguf

        scale, minimum = np.array([0.5, -3.0], dtype="<f2")
        codes = np.arange(16, dtype=np.uint8) | (15 - np.arange(16, dtype=np.uint8)) << 4
        block = np.frombuffer(scale.tobytes() + minimum.tobytes() + codes.tobytes(), np.uint8)
        found = gguf.quants.dequantize(block[None], gguf.GGMLQuantizationType.Q4_1)
        wanted = np.concatenate([np.arange(16), 15 - np.arange(16)]) * 0.5 - 3.0
        np.testing.assert_array_equal(found, [wanted])
        values = np.arange(-16, 16, dtype=np.int8)
        block = np.frombuffer(scale.tobytes() + values.tobytes(), np.uint8)
        found = gguf.quants.dequantize(block[None], gguf.GGMLQuantizationType.Q8_0)
        np.testing.assert_array_equal(found, [values * 0.5])


class LoudSkips(unittest.TextTestResult):
    """A skip is printed with its reason, not as a letter."""

    def addSkip(self, test: unittest.TestCase, reason: str) -> None:  # noqa: N802
        unittest.TestResult.addSkip(self, test, reason)
        self.stream.writeln(f"SKIPPED {test.id()}: {reason}")


if __name__ == "__main__":
    unittest.main(testRunner=unittest.TextTestRunner(resultclass=LoudSkips))
