// The forwarding device, see foreign_kernels.hpp.
#include "verify/foreign_kernels.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <utility>

#include "gpu/kernels/kernel_table.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::verify {
namespace {

class foreign_kernel_device final : public gpu::device {
 public:
  foreign_kernel_device(gpu::device& inner, std::string ptx)
      : inner_(inner), ptx_(std::move(ptx)) {}

  [[nodiscard]] gpu::device_info info() const override { return inner_.info(); }
  [[nodiscard]] gpu::device_ptr allocate(std::int64_t size_bytes) override {
    return inner_.allocate(size_bytes);
  }
  void deallocate(gpu::device_ptr p) noexcept override { inner_.deallocate(p); }
  void copy_to_device(gpu::device_ptr dst, std::span<const std::byte> src) override {
    inner_.copy_to_device(dst, src);
  }
  void copy_to_host(std::span<std::byte> dst, gpu::device_ptr src) override {
    inner_.copy_to_host(dst, src);
  }
  void fill(gpu::device_ptr dst, std::byte value, std::int64_t size_bytes) override {
    inner_.fill(dst, value, size_bytes);
  }
  [[nodiscard]] std::shared_ptr<gpu::kernel> load(const gpu::kernel_module& module,
                                                  std::string_view entry) override {
    if (!defines_entry(ptx_, entry)) return inner_.load(module, entry);
    return inner_.load({"foreign", ptx_, {}}, entry);
  }
  [[nodiscard]] std::shared_ptr<gpu::stream> create_stream() override {
    return inner_.create_stream();
  }
  [[nodiscard]] std::shared_ptr<gpu::event> create_event() override {
    return inner_.create_event();
  }
  void record(gpu::event& e, gpu::stream* s) override { inner_.record(e, s); }
  [[nodiscard]] double elapsed_us(gpu::event& begin, gpu::event& end) override {
    return inner_.elapsed_us(begin, end);
  }
  void launch(gpu::kernel& k, const gpu::launch_shape& shape, std::span<const std::byte> params,
              gpu::stream* s) override {
    inner_.launch(k, shape, params, s);
  }
  void synchronize() override { inner_.synchronize(); }

 private:
  gpu::device& inner_;
  std::string ptx_;
};

}  // namespace

bool defines_entry(std::string_view ptx, std::string_view entry) {
  const std::string head = ".entry " + std::string(entry);
  for (std::size_t at = ptx.find(head); at != std::string_view::npos; at = ptx.find(head, at + 1)) {
    const std::size_t end = at + head.size();
    if (end >= ptx.size() ||
        (std::isalnum(static_cast<unsigned char>(ptx[end])) == 0 && ptx[end] != '_'))
      return true;
  }
  return false;
}

std::unique_ptr<gpu::device> with_foreign_kernels(gpu::device& inner, std::string ptx,
                                                  const std::string& file) {
  const auto replaced = [&](const gpu::kernel_entry& k) { return defines_entry(ptx, k.entry); };
  if (std::ranges::none_of(gpu::kernel_entries(), replaced)) {
    throw spec::input_error(fmt::format(
        "{}: no .entry has the name of a shipped kernel; see kvproof list kernels", file));
  }
  return std::make_unique<foreign_kernel_device>(inner, std::move(ptx));
}

}  // namespace kvproof::verify
