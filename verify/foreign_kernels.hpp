// A device that takes kernels from a given PTX text instead of the shipped module wherever the text
// has an entry of the same name: how mutants and kernels from outside are verified like our own.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "gpu/device/device.hpp"

namespace kvproof::verify {

// Everything but load() goes to `inner`, which must outlive the result. Throws input_error when the
// text (of `file`) defines no entry of a shipped kernel.
[[nodiscard]] std::unique_ptr<gpu::device> with_foreign_kernels(gpu::device& inner, std::string ptx,
                                                                const std::string& file);

// True when the PTX text defines this entry.
[[nodiscard]] bool defines_entry(std::string_view ptx, std::string_view entry);

}  // namespace kvproof::verify
