// Tokens of PTX text. A word is a run of letters, digits, `_ $ % .` and `::`, so that an opcode
// with its modifiers ("ld.global.v2.u32"), a directive (".reg") and a number ("0f3F800000") are one
// token each; everything else is single-character punctuation. Comments are dropped.
#pragma once

#include <string_view>
#include <vector>

namespace kvproof::gpu::emulator {

enum class token_kind : unsigned char { word, punctuation, string, end };

struct token {
  token_kind kind = token_kind::end;
  std::string_view text;
  int line = 0;  // 1-based line of the PTX text

  [[nodiscard]] bool is(std::string_view s) const {
    return kind != token_kind::string && text == s;
  }
};

// The last token has kind `end`. The views point into `ptx`.
[[nodiscard]] std::vector<token> tokenize(std::string_view ptx);

}  // namespace kvproof::gpu::emulator
