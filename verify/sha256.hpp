// SHA-256 (FIPS 180-4), to name the exact PTX that evidence speaks of.
#pragma once

#include <string>
#include <string_view>

namespace kvproof::verify {

// 64 lower-case hexadecimal digits.
[[nodiscard]] std::string sha256_hex(std::string_view data);

}  // namespace kvproof::verify
