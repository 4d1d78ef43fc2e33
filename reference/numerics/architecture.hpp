// GPU architectures whose tensor cores are modelled. Results of sm_80 and sm_90 legitimately
// differ.
#pragma once

#include <cstdint>

namespace kvproof::reference {

enum class architecture : std::uint8_t { sm_80, sm_90 };

}  // namespace kvproof::reference
