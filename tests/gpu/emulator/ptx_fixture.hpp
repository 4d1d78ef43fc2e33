// Runs hand-written PTX. Every thread has sources %a0..%a3 (64 bits, from the input) and their low
// halves %r0..%r3, and stores %d0 and %d1 at the end.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "gpu/device/emulator/emulator.hpp"

namespace kvproof::gpu::emulator {

using sources = std::array<std::uint64_t, 4>;
using results = std::array<std::uint64_t, 2>;

struct ptx_run {
  options how;
  std::uint32_t ctas = 1;
  std::uint32_t dynamic_shared_bytes = 0;
  std::string module_scope;  // variables outside the entry

  // One thread for each element of `in` and CTA; the results of all threads in order.
  [[nodiscard]] std::vector<results> operator()(const std::string& code,
                                                const std::vector<sources>& in) const {
    const std::string ptx = fmt::format(R"(.version 9.0
.target sm_90a
.address_size 64
{}
.visible .entry test(.param .u64 test_in, .param .u64 test_out)
{{
.reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<40>; .reg .f32 %f<9>; .reg .f64 %fd<5>;
.reg .b64 %a<9>, %d<4>, %x<9>;
mov.u32 %r30, %tid.x; mov.u32 %r31, %ctaid.x; mov.u32 %r32, %ntid.x;
mul.wide.u32 %x0, %r30, 32; ld.param.u64 %x1, [test_in]; add.s64 %x0, %x0, %x1;
ld.global.v2.u64 {{%a0, %a1}}, [%x0]; ld.global.v2.u64 {{%a2, %a3}}, [%x0+16];
cvt.u32.u64 %r0, %a0; cvt.u32.u64 %r1, %a1; cvt.u32.u64 %r2, %a2; cvt.u32.u64 %r3, %a3;
mad.lo.s32 %r33, %r31, %r32, %r30;
mul.wide.u32 %x2, %r33, 16; ld.param.u64 %x3, [test_out]; add.s64 %x2, %x2, %x3;
mov.b64 %d0, 0; mov.b64 %d1, 0;
{}
st.global.v2.u64 [%x2], {{%d0, %d1}};
ret;
}}
)",
                                        module_scope, code);
    const auto dev = open(how);
    const auto threads = static_cast<std::uint32_t>(in.size());
    const auto bytes_in = static_cast<std::int64_t>(in.size() * sizeof(sources));
    std::vector<results> out(in.size() * ctas);
    const auto bytes_out = static_cast<std::int64_t>(out.size() * sizeof(results));
    const device_buffer source(*dev, bytes_in);
    const device_buffer target(*dev, bytes_out);
    dev->copy_to_device(source.get(), std::as_bytes(std::span(in)));
    const std::array<device_ptr, 2> params{source.get(), target.get()};
    const auto k = dev->load({"hand_written", ptx, {}}, "test");
    launch_shape shape;
    shape.grid.x = ctas;
    shape.block.x = threads;
    shape.dynamic_shared_bytes = dynamic_shared_bytes;
    dev->launch(*k, shape, std::as_bytes(std::span(params)));
    dev->copy_to_host(std::as_writable_bytes(std::span(out)), target.get());
    return out;
  }
};

// d0 of a single thread.
inline std::uint64_t evaluate(const std::string& code, const sources& in) {
  return ptx_run{}(code, {in})[0][0];
}

}  // namespace kvproof::gpu::emulator
