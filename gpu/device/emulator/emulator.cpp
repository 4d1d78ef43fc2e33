#include "gpu/device/emulator/emulator.hpp"

#include <fmt/format.h>
#include <omp.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <vector>

#include "gpu/device/emulator/cta.hpp"
#include "gpu/device/emulator/decode/program.hpp"
#include "gpu/device/emulator/memory.hpp"
#include "reference/spec/error.hpp"

namespace kvproof::gpu::emulator {

handler select_handler(const instruction& i) {
  static const bool avx2 = __builtin_cpu_supports("avx2") != 0 &&
                           __builtin_cpu_supports("fma") != 0 &&
                           __builtin_cpu_supports("f16c") != 0;
  if (i.control || i.op == opcode::trap) {
    return [](warp&, const instruction&, std::uint32_t m) -> step {
      throw fault{"trap", std::countr_zero(m), "the kernel found its own condition violated"};
    };
  }
  if (const handler h = select_memory(i)) return h;
  if (const handler h = select_warp_wide(i)) return h;
  if (const handler h = select_async(i)) return h;
  if (const handler h = avx2 ? select_tensor_avx2(i) : select_tensor_baseline(i)) return h;
  return avx2 ? select_arithmetic_avx2(i) : select_arithmetic_baseline(i);
}

namespace {

constexpr int multiprocessors = 4;
constexpr int max_shared_bytes = 232448;
constexpr int shared_bytes_per_multiprocessor = 233472;
constexpr int reserved_shared_bytes = 1024;
constexpr int threads_per_multiprocessor = 2048;
constexpr int max_threads_per_cta = 1024;
constexpr int max_resident_ctas = 32;

class emulated_kernel final : public kernel {
 public:
  emulated_kernel(std::shared_ptr<const program> code, const void* owner)
      : code_(std::move(code)), owner_(owner) {}
  [[nodiscard]] const program& code() const { return *code_; }
  [[nodiscard]] const void* owner() const { return owner_; }
  [[nodiscard]] kernel_facts facts() const override {
    return {code_->num_registers, static_cast<int>(code_->static_shared_bytes),
            static_cast<int>(code_->local_bytes),
            code_->max_threads != 0 ? code_->max_threads : max_threads_per_cta};
  }
  [[nodiscard]] int max_ctas_per_multiprocessor(int threads,
                                                int dynamic_shared_bytes) const override {
    const int shared =
        static_cast<int>(code_->static_shared_bytes) + dynamic_shared_bytes + reserved_shared_bytes;
    const int by_threads = threads_per_multiprocessor / std::max(threads, 1);
    return std::clamp(std::min(by_threads, shared_bytes_per_multiprocessor / shared), 1,
                      max_resident_ctas);
  }

 private:
  std::shared_ptr<const program> code_;
  const void* owner_;
};

class emulated_stream final : public stream {};
class emulated_event final : public event {
 public:
  std::chrono::steady_clock::time_point time;
};

struct loaded_module {
  module_source source;
  const char* permanent_text = nullptr;  // where the text of an embedded kernel lies
  std::map<std::string, std::shared_ptr<kernel>, std::less<>> kernels;
};

class emulator_impl final : public emulator_device {
 public:
  explicit emulator_impl(const options& o) : options_(o) {}

  [[nodiscard]] device_info info() const override {
    return {
        device_kind::emulator,  "PTX emulator (sm_90a)", 90, multiprocessors, std::int64_t{1} << 34,
        std::int64_t{50} << 20, max_shared_bytes,        {}};
  }
  [[nodiscard]] statistics totals() const override { return totals_; }

  [[nodiscard]] device_ptr allocate(std::int64_t size_bytes) override {
    if (size_bytes < 0)
      throw spec::contract_error(
          fmt::format("allocation of {} bytes; pass a size of at least 0", size_bytes));
    return device_ptr{memory_.allocate(size_bytes)};
  }
  void deallocate(device_ptr p) noexcept override {
    memory_.deallocate(static_cast<std::uint64_t>(p));
  }
  void copy_to_device(device_ptr dst, std::span<const std::byte> src) override {
    if (!src.empty())
      std::memcpy(host(dst, src.size(), "copy to the device"), src.data(), src.size());
  }
  void copy_to_host(std::span<std::byte> dst, device_ptr src) override {
    if (!dst.empty())
      std::memcpy(dst.data(), host(src, dst.size(), "copy to the host"), dst.size());
  }
  void fill(device_ptr dst, std::byte value, std::int64_t size_bytes) override {
    if (size_bytes > 0)
      std::memset(host(dst, static_cast<std::size_t>(size_bytes), "fill"), static_cast<int>(value),
                  static_cast<std::size_t>(size_bytes));
  }

  [[nodiscard]] std::shared_ptr<kernel> load(const kernel_module& module,
                                             std::string_view entry) override {
    loaded_module& m = module_of(module);
    if (const auto k = m.kernels.find(entry); k != m.kernels.end()) return k->second;
    for (const entry_source& e : m.source.entries) {
      if (e.name != entry) continue;
      auto k = std::make_shared<emulated_kernel>(
          std::shared_ptr<const program>(decode(m.source, e)), this);
      m.kernels.emplace(std::string(entry), k);
      return k;
    }
    throw spec::device_error(fmt::format(
        "module {} has no kernel {}; check the name against its PTX", module.name, entry));
  }

  [[nodiscard]] std::shared_ptr<stream> create_stream() override {
    return std::make_shared<emulated_stream>();
  }
  [[nodiscard]] std::shared_ptr<event> create_event() override {
    return std::make_shared<emulated_event>();
  }
  void record(event& e, stream*) override {
    dynamic_cast<emulated_event&>(e).time = std::chrono::steady_clock::now();
  }
  [[nodiscard]] double elapsed_us(event& begin, event& end) override {
    const auto span =
        dynamic_cast<emulated_event&>(end).time - dynamic_cast<emulated_event&>(begin).time;
    return std::chrono::duration<double, std::micro>(span).count();
  }
  void synchronize() override {}

  void launch(kernel& k, const launch_shape& shape, std::span<const std::byte> params,
              stream*) override {
    const auto* mine = dynamic_cast<const emulated_kernel*>(&k);
    if (mine == nullptr || mine->owner() != this)
      throw spec::contract_error("the kernel belongs to another device; load it from this one");
    launch_context context{&mine->code(), &memory_, params, shape,
                           mine->code().static_shared_bytes};
    check_shape(context);
    run(context);
  }

 private:
  std::byte* host(device_ptr p, std::size_t bytes, const char* what) {
    const auto address = static_cast<std::uint64_t>(p);
    const allocation* a = memory_.find(address, bytes);
    if (a == nullptr)
      throw spec::device_error(fmt::format("{} of {} bytes at 0x{:x}, {}; check pointer and size",
                                           what, bytes, address, memory_.describe(address)));
    return a->host + (address - a->begin);
  }

  loaded_module& module_of(const kernel_module& module) {
    for (const auto& m : modules_)
      if ((module.permanent && m->permanent_text == module.ptx.data()) ||
          (m->source.name == module.name && m->source.text == module.ptx))
        return *m;
    auto m = std::make_unique<loaded_module>();
    if (module.permanent) m->permanent_text = module.ptx.data();
    m->source = parse_module(module.name, module.ptx);
    for (variable& v : m->source.variables) {
      if (v.space != state_space::global && v.space != state_space::constant) continue;
      const std::uint64_t at = memory_.allocate(v.size_bytes, std::string(v.name));
      v.address = static_cast<std::int64_t>(at);
      std::byte* to = memory_.find(at, static_cast<std::uint64_t>(v.size_bytes))->host;
      std::memset(to, 0, static_cast<std::size_t>(v.size_bytes));
      const std::span<const std::byte> initial = std::as_bytes(std::span(v.initial));
      std::ranges::copy(
          initial.first(std::min(initial.size(), static_cast<std::size_t>(v.size_bytes))), to);
      if (v.space == state_space::constant) memory_.set_read_only(at);
    }
    modules_.push_back(std::move(m));
    return *modules_.back();
  }

  static void check_shape(launch_context& c) {
    const launch_shape& s = c.shape;
    const auto refuse = [&](const std::string& what) {
      throw spec::contract_error(fmt::format("launch of {}: {}", c.code->entry, what));
    };
    if (s.grid.x == 0 || s.grid.y == 0 || s.grid.z == 0)
      refuse("the grid is empty; do not launch it");
    if (s.grid.y > 65535 || s.grid.z > 65535) refuse("grid.y and grid.z are at most 65535");
    const std::uint64_t threads = std::uint64_t{s.block.x} * s.block.y * s.block.z;
    const auto limit = static_cast<std::uint64_t>(c.code->max_threads != 0 ? c.code->max_threads
                                                                           : max_threads_per_cta);
    if (threads == 0 || threads > limit)
      refuse(fmt::format("{} threads in a CTA; use 1 to {}", threads, limit));
    if (s.cluster.x != 1 || s.cluster.y != 1 || s.cluster.z != 1)
      refuse("clusters are not emulated; use a cluster of 1");
    if (s.dynamic_shared_bytes != 0) {
      std::int64_t begin = shared_base + c.code->static_shared_bytes;
      for (const variable& v : c.code->variables)
        if (v.space == state_space::shared && v.size_bytes == 0) begin = std::max(begin, v.address);
      c.shared_bytes = begin - shared_base + s.dynamic_shared_bytes;
    }
    if (c.shared_bytes > max_shared_bytes)
      refuse(fmt::format("{} bytes of shared memory; at most {} exist", c.shared_bytes,
                         max_shared_bytes));
    if (static_cast<std::int64_t>(c.params.size()) != c.code->param_bytes)
      refuse(fmt::format("{} bytes of parameters; the kernel takes {}", c.params.size(),
                         c.code->param_bytes));
  }

  // The error of the lowest faulting CTA is reported, whatever the number of threads.
  void run(const launch_context& c) {
    const std::uint64_t ctas = std::uint64_t{c.shape.grid.x} * c.shape.grid.y * c.shape.grid.z;
    std::uint64_t first_bad = std::numeric_limits<std::uint64_t>::max();
    std::string message;
    std::mutex guard;
    std::int64_t instructions = 0;
    std::int64_t mmas = 0;
    const int threads = options_.num_threads > 0 ? options_.num_threads : omp_get_max_threads();
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) reduction(+ : instructions, mmas)
    for (std::uint64_t k = 0; k < ctas; ++k) {
      {
        const std::lock_guard lock(guard);
        if (k > first_bad) continue;
      }
      try {
        const cta_counts n = run_cta(c, k, options_);
        instructions += n.warp_instructions;
        mmas += n.mmas;
      } catch (const std::exception& e) {
        const std::lock_guard lock(guard);
        if (k < first_bad) {
          first_bad = k;
          message = e.what();
        }
      }
    }
    ++totals_.launches;
    totals_.warp_instructions += instructions;
    totals_.mmas += mmas;
    if (!message.empty()) throw spec::device_error(message);
  }

  options options_;
  global_memory memory_;
  std::vector<std::unique_ptr<loaded_module>> modules_;
  statistics totals_;
};

}  // namespace

std::unique_ptr<emulator_device> open(const options& o) {
  return std::make_unique<emulator_impl>(o);
}

}  // namespace kvproof::gpu::emulator

namespace kvproof::gpu {

std::unique_ptr<device> open_emulator() { return emulator::open({}); }

}  // namespace kvproof::gpu
