// See text_file.hpp.
#include "verify/text_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <system_error>

#include "reference/spec/error.hpp"

namespace kvproof::verify {

std::string read_text(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in || std::filesystem::is_directory(file))
    throw spec::input_error(fmt::format("cannot read {}; check the path", file.string()));
  return text;
}

void replace_file(const std::filesystem::path& file, std::string_view text) {
  std::filesystem::path temporary = file;
  temporary += ".tmp";
  std::error_code error;
  std::ofstream out(temporary, std::ios::binary);
  out << text;
  out.close();
  if (out) std::filesystem::rename(temporary, file, error);
  if (out && !error) return;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  throw spec::usage_error(
      fmt::format("cannot write {}; check that its folder exists and has room", file.string()));
}

}  // namespace kvproof::verify
