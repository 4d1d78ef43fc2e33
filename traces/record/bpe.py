"""Byte-level BPE as GPT-2 does it, with the "smollm" pre-tokenizer: digits stand alone.

The vocabulary and the merges come from the GGUF file. Special tokens are never produced from text.
"""

import re
import unicodedata

# Applied to the class string of a piece (see `_char_class`): one class letter per character.
_PIECE = re.compile(r" ?L+| ?O+|\s+(?!\S)|\s+")
_CONTRACTION = re.compile(r"'(?:s|t|re|ve|m|ll|d)")


def byte_alphabet() -> dict[int, str]:
    """GPT-2's printable stand-in for each of the 256 byte values."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in alphabet:
            alphabet[byte] = chr(256 + len(alphabet) - len(printable))
    return alphabet


def _char_class(char: str) -> str:
    """L letter, N number, blank or tab for white space, O anything else."""
    if char == " ":
        return " "
    if char.isspace():
        return "\t"
    category = unicodedata.category(char)[0]
    return category if category in "LN" else "O"


def _split_piece(piece: str, classes: str) -> list[str]:
    """Splits a stretch without numbers by GPT-2's expression."""
    words = []
    start = 0
    while start < len(piece):
        match = _CONTRACTION.match(piece, start) or _PIECE.match(classes, start)
        assert match is not None, "the expression covers every class"
        words.append(piece[start : match.end()])
        start = match.end()
    return words


def pre_tokenize(text: str) -> list[str]:
    """Cuts text into the words inside which merges may happen; joined they are the text."""
    classes = "".join(map(_char_class, text))
    words = []
    for match in re.finditer(r"N|[^N]+", classes):
        start, end = match.span()
        if match.group() == "N":
            words.append(text[start:end])
        else:
            words.extend(_split_piece(text[start:end], classes[start:end]))
    return words


class BpeTokenizer:
    """Encodes by merging the pair of lowest rank until none is left; decodes by concatenation."""

    def __init__(self, tokens: list[str], merges: list[str]) -> None:
        self._tokens = tokens
        self._ids = {token: index for index, token in enumerate(tokens)}
        self._ranks = {tuple(merge.split(" ")): rank for rank, merge in enumerate(merges)}
        self._to_char = byte_alphabet()
        self._to_byte = {char: byte for byte, char in self._to_char.items()}

    def _merge(self, symbols: list[str]) -> list[str]:
        while len(symbols) > 1:
            pairs = set(zip(symbols, symbols[1:], strict=False))
            best = min(pairs, key=lambda pair: self._ranks.get(pair, len(self._ranks)))
            if best not in self._ranks:
                break
            symbols = _replace_pair(symbols, best)
        return symbols

    def encode(self, text: str) -> list[int]:
        """Token ids of text; no token is added in front or behind."""
        ids = []
        for word in pre_tokenize(text):
            symbols = [self._to_char[byte] for byte in word.encode("utf-8")]
            ids.extend(self._ids[symbol] for symbol in self._merge(symbols))
        return ids

    def decode(self, ids: list[int]) -> str:
        """Text of ids; bytes that are not UTF-8 become U+FFFD."""
        chars = "".join(self._tokens[index] for index in ids)
        return bytes(self._to_byte[char] for char in chars).decode("utf-8", errors="replace")


def _replace_pair(symbols: list[str], pair: tuple[str, str]) -> list[str]:
    """Every occurrence of pair, from the left, becomes one symbol."""
    merged = []
    index = 0
    while index < len(symbols):
        if tuple(symbols[index : index + 2]) == pair:
            merged.append(symbols[index] + symbols[index + 1])
            index += 2
        else:
            merged.append(symbols[index])
            index += 1
    return merged
