#include "gpu/device/emulator/ptx/ptx_lexer.hpp"

#include <algorithm>

namespace kvproof::gpu::emulator {
namespace {

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '$' || c == '%' || c == '.';
}

// End of the word that starts at `i`; "::" belongs to a word, a single ':' ends a label.
std::size_t word_end(std::string_view s, std::size_t i) {
  while (i < s.size()) {
    if (is_word(s[i])) {
      ++i;
    } else if (s[i] == ':' && i + 2 < s.size() && s[i + 1] == ':' && is_word(s[i + 2])) {
      i += 2;
    } else {
      break;
    }
  }
  return i;
}

}  // namespace

std::vector<token> tokenize(std::string_view ptx) {
  std::vector<token> tokens;
  int line = 1;
  std::size_t i = 0;
  const auto skip_to = [&](std::size_t end) {
    for (; i < end; ++i) line += ptx[i] == '\n' ? 1 : 0;
  };
  while (i < ptx.size()) {
    const char c = ptx[i];
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '\0') {
      skip_to(i + 1);
    } else if (ptx.substr(i, 2) == "//") {
      skip_to(std::min(ptx.find('\n', i), ptx.size()));
    } else if (ptx.substr(i, 2) == "/*") {
      const std::size_t close = ptx.find("*/", i + 2);
      skip_to(close == std::string_view::npos ? ptx.size() : close + 2);
    } else if (c == '"') {
      const std::size_t end = std::min(ptx.find('"', i + 1), ptx.size() - 1) + 1;
      tokens.push_back({token_kind::string, ptx.substr(i, end - i), line});
      skip_to(end);
    } else if (is_word(c)) {
      const std::size_t end = word_end(ptx, i);
      tokens.push_back({token_kind::word, ptx.substr(i, end - i), line});
      i = end;
    } else {
      tokens.push_back({token_kind::punctuation, ptx.substr(i, 1), line});
      ++i;
    }
  }
  tokens.push_back({token_kind::end, {}, line});
  return tokens;
}

}  // namespace kvproof::gpu::emulator
