// Whole text files: read, and replaced in one step.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace kvproof::verify {

// Throws input_error.
[[nodiscard]] std::string read_text(const std::filesystem::path& file);

// Via a temporary file beside it and a rename: a failure leaves the old file. Throws usage_error.
void replace_file(const std::filesystem::path& file, std::string_view text);

}  // namespace kvproof::verify
