#include "gpu/device/emulator/cta.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <numeric>

#include "reference/spec/error.hpp"

namespace kvproof::gpu::emulator {
namespace {

constexpr int warp_lanes = 32;
constexpr std::int64_t slice_instructions = 100000;
constexpr std::size_t row_alignment = 64;

// SplitMix64: the random warp order is a pure function of seed, CTA and draw.
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class cta_runner {
 public:
  cta_runner(const launch_context& launch, std::uint64_t linear, const options& o)
      : launch_(launch), code_(*launch.code), options_(o) {
    cta_.launch = &launch;
    cta_.linear = linear;
    const extent3& g = launch.shape.grid;
    cta_.index[0] = static_cast<std::uint32_t>(linear % g.x);
    cta_.index[1] = static_cast<std::uint32_t>(linear / g.x % g.y);
    cta_.index[2] = static_cast<std::uint32_t>(linear / g.x / g.y);
    cta_.shared.assign(static_cast<std::size_t>(launch.shared_bytes), std::byte{0xcd});
    threads_ = static_cast<int>(launch.shape.block.x * launch.shape.block.y * launch.shape.block.z);
    const int warps = (threads_ + warp_lanes - 1) / warp_lanes;
    const std::size_t register_bytes =
        (code_.register_bytes + row_alignment - 1) / row_alignment * row_alignment;
    storage_.resize(static_cast<std::size_t>(warps) * register_bytes + row_alignment,
                    std::byte{0xcd});
    predicates_.resize(static_cast<std::size_t>(warps) * std::max(code_.num_predicates, 1u));
    auto base = reinterpret_cast<std::uintptr_t>(storage_.data());
    base = (base + row_alignment - 1) / row_alignment * row_alignment;
    cta_.warps.resize(static_cast<std::size_t>(warps));
    for (int k = 0; k < warps; ++k) {
      warp& w = cta_.warps[static_cast<std::size_t>(k)];
      w.owner = &cta_;
      w.id = k;
      w.registers =
          reinterpret_cast<std::byte*>(base) + static_cast<std::size_t>(k) * register_bytes;
      w.predicates = predicates_.data() + static_cast<std::size_t>(k) * code_.num_predicates;
      const int lanes = std::min(warp_lanes, threads_ - k * warp_lanes);
      w.live = lanes == warp_lanes ? 0xffffffffu : (1u << lanes) - 1;
      w.stack.push_back({0, static_cast<std::int32_t>(code_.code.size()), w.live});
      w.local.assign(static_cast<std::size_t>(code_.local_bytes * warp_lanes), std::byte{0xcd});
      fill_rows(w);
    }
  }

  cta_counts run() {
    std::vector<int> order(cta_.warps.size());
    std::iota(order.begin(), order.end(), 0);
    if (options_.order == warp_order::latest_first) std::reverse(order.begin(), order.end());
    while (std::any_of(cta_.warps.begin(), cta_.warps.end(),
                       [](const warp& w) { return w.live != 0; })) {
      if (options_.order == warp_order::random) shuffle(order);
      const std::uint64_t before = cta_.version;
      bool advanced = false;
      for (const int k : order) {
        warp& w = cta_.warps[static_cast<std::size_t>(k)];
        if (w.live == 0 || w.waiting_barrier >= 0) continue;
        const bool spinning =
            run_warp(w, slice()) && w.failed_waits >= 3 && w.seen_version == cta_.version;
        advanced = advanced || !spinning;
      }
      if (!advanced && before == cta_.version) report_deadlock();
    }
    cta_counts counts;
    for (const warp& w : cta_.warps) {
      counts.warp_instructions += w.instructions;
      counts.mmas += w.mmas;
    }
    return counts;
  }

 private:
  void shuffle(std::vector<int>& order) {
    for (std::size_t k = order.size(); k > 1; --k) std::swap(order[k - 1], order[draw() % k]);
  }
  std::uint64_t draw() { return mix(mix(options_.seed ^ mix(cta_.linear)) + ++draws_); }
  std::int64_t slice() {
    return options_.order == warp_order::random ? 1 + static_cast<std::int64_t>(draw() % 256)
                                                : slice_instructions;
  }

  std::uint64_t special_value(const warp& w, special what, int lane) const {
    const launch_shape& s = launch_.shape;
    const auto thread = static_cast<std::uint32_t>(w.id * warp_lanes + lane);
    const std::uint32_t below = (1u << lane) - 1;
    switch (what) {
      case special::tid_x:
        return thread % s.block.x;
      case special::tid_y:
        return thread / s.block.x % s.block.y;
      case special::tid_z:
        return thread / s.block.x / s.block.y;
      case special::ntid_x:
        return s.block.x;
      case special::ntid_y:
        return s.block.y;
      case special::ntid_z:
        return s.block.z;
      case special::ctaid_x:
        return cta_.index[0];
      case special::ctaid_y:
        return cta_.index[1];
      case special::ctaid_z:
        return cta_.index[2];
      case special::nctaid_x:
        return s.grid.x;
      case special::nctaid_y:
        return s.grid.y;
      case special::nctaid_z:
        return s.grid.z;
      case special::laneid:
        return static_cast<std::uint64_t>(lane);
      case special::warpid:
        return static_cast<std::uint64_t>(w.id);
      case special::nwarpid:
        return cta_.warps.size();
      case special::smid:
        return cta_.linear % 4;
      case special::nsmid:
        return 4;
      case special::lanemask_eq:
        return below + 1;
      case special::lanemask_lt:
        return below;
      case special::lanemask_le:
        return below | (below + 1);
      case special::lanemask_ge:
        return static_cast<std::uint32_t>(~below);
      case special::lanemask_gt:
        return static_cast<std::uint32_t>(~(below | (below + 1)));
      case special::dynamic_smem_size:
        return s.dynamic_shared_bytes;
      case special::total_smem_size:
        return static_cast<std::uint64_t>(launch_.shared_bytes);
      case special::warp_size:
        return warp_lanes;
      case special::one:
        return 1;
      default:
        return 0;  // gridid, cluster_ctarank
    }
  }
  void fill_rows(warp& w) const {
    const auto put = [&](std::uint32_t at, bool wide, int lane, std::uint64_t v) {
      if (wide) {
        row<std::uint64_t>(w, at)[lane] = v;
      } else {
        row<std::uint32_t>(w, at)[lane] = static_cast<std::uint32_t>(v);
      }
    };
    for (int lane = 0; lane < warp_lanes; ++lane) {
      for (const constant_row& c : code_.constants) put(c.row, c.wide, lane, c.bits);
      for (const special_row& s : code_.specials)
        put(s.row, s.wide, lane, special_value(w, s.what, lane));
    }
  }

  // "decode.cu:123, " where the compiler left the line (nvcc -lineinfo).
  [[nodiscard]] std::string source_line(std::size_t at) const {
    const source_place& p = code_.places[at];
    const auto file = code_.files.find(p.file);
    return p.line == 0 || file == code_.files.end() ? std::string()
                                                    : fmt::format("{}:{}, ", file->second, p.line);
  }

  [[noreturn]] void report(const warp& w, std::int32_t pc, const fault& f) const {
    const auto at = static_cast<std::size_t>(
        std::min<std::int32_t>(pc, static_cast<std::int32_t>(code_.code.size()) - 1));
    throw spec::device_error(fmt::format(
        "kernel {} (module {}), {}PTX line {} ({}), cta ({}, {}, {}), warp {}, lane {}: {}; {}",
        code_.entry, code_.module, source_line(at), code_.code[at].line, code_.text[at],
        cta_.index[0], cta_.index[1], cta_.index[2], w.id,
        f.lane < 0 ? std::string("all") : std::to_string(f.lane), f.what, f.advice));
  }

  [[noreturn]] void report_deadlock() const {
    for (const warp& w : cta_.warps) {
      if (w.live == 0) continue;
      if (w.waiting_barrier >= 0) continue;
      report(w, w.stack.empty() ? 0 : w.stack.back().pc,
             {"deadlock: every warp waits for an mbarrier or a barrier that nobody will complete",
              -1, "check the arrival counts, the expected bytes and the parity"});
    }
    const auto w = std::find_if(cta_.warps.begin(), cta_.warps.end(),
                                [](const warp& x) { return x.live != 0; });
    report(*w, w->stack.back().pc - 1,
           {fmt::format("deadlock: the remaining warps wait at barrier {} that never fills",
                        w->waiting_barrier),
            -1, "every thread counted by the barrier must arrive"});
  }

  // Runs until the warp yields (true), blocks, ends or has used its slice (false).
  bool run_warp(warp& w, std::int64_t slice) {
    std::int32_t pc = 0;
    try {
      return run_slice(w, slice, pc);
    } catch (const fault& f) {
      report(w, pc, f);
    }
  }

  bool run_slice(warp& w, std::int64_t slice, std::int32_t& pc) {
    const instruction* code = code_.code.data();
    const auto end = static_cast<std::int32_t>(code_.code.size());
    while (!w.stack.empty()) {
      stack_entry& top = w.stack.back();
      if (top.mask == 0 || top.pc == top.reconverge) {
        if (top.mask != 0 && w.stack.size() == 1) leave(w, top.mask);
        w.stack.pop_back();
        continue;
      }
      if (top.pc >= end) {
        leave(w, top.mask);
        continue;
      }
      pc = top.pc;
      const std::int32_t stop = top.reconverge;
      const std::uint32_t mask = top.mask;
      step result = step::next;
      while (pc != stop && pc < end) {
        const instruction& i = code[pc];
        std::uint32_t m = mask;
        if (i.guard >= 0) m &= i.guard_negated ? ~w.predicates[i.guard] : w.predicates[i.guard];
        ++w.instructions;
        --slice;
        if (i.control) {
          result = control(w, i, m, pc);
          if (result != step::next || slice <= 0) break;
          continue;
        }
        if (m != 0) result = i.run(w, i, m);
        ++pc;
        if (result != step::next || slice <= 0) break;
      }
      if (result != step::jump && result != step::exit) w.stack.back().pc = pc;
      if (result == step::yield) return true;
      if (result == step::barrier) return false;
      if (slice <= 0) {
        check_budget(w);
        return false;
      }
    }
    return false;
  }

  void check_budget(const warp& w) const {
    if (w.instructions > options_.max_warp_instructions_per_cta)
      throw fault{
          fmt::format("no end after {} warp instructions", w.instructions), -1,
          "a CTA must not wait for another CTA; raise the limit if the kernel is just long"};
  }

  // step::next: `pc` is the next instruction of the same lanes. step::jump and step::exit: the
  // stack has changed. step::barrier: the warp waits.
  step control(warp& w, const instruction& i, std::uint32_t m, std::int32_t& pc) {
    switch (i.op) {
      case opcode::branch:
        return branch(w, i, m, pc);
      case opcode::exit:
        if (m == 0) {
          ++pc;
          return step::next;
        }
        w.stack.back().pc = pc + 1;
        leave(w, m);
        return step::exit;
      default:
        return barrier(w, i, m, pc);
    }
  }

  static step branch(warp& w, const instruction& i, std::uint32_t taken, std::int32_t& pc) {
    const stack_entry top = w.stack.back();
    const std::uint32_t rest = top.mask & ~taken;
    if (rest == 0 || taken == 0) {
      pc = rest == 0 ? i.target : pc + 1;
      w.stack.back().pc = pc;
      return step::jump;
    }
    if (top.reconverge == i.reconverge) {
      w.stack.pop_back();
    } else {
      w.stack.back().pc = i.reconverge;
    }
    w.stack.push_back({i.target, i.reconverge, taken});
    w.stack.push_back({pc + 1, i.reconverge, rest});
    return step::jump;
  }

  void leave(warp& w, std::uint32_t lanes) {
    for (stack_entry& e : w.stack) e.mask &= ~lanes;
    w.live &= ~lanes;
    if (w.live != 0) return;
    ++cta_.version;
    for (int id = 0; id < 16; ++id) release_if_full(id);
  }

  step barrier(warp& w, const instruction& i, std::uint32_t m, std::int32_t& pc) {
    ++pc;
    if (m == 0) return step::next;
    --pc;
    if (m != w.live)
      throw fault{
          fmt::format("divergent barrier: lanes 0x{:08x} of the live lanes 0x{:08x} are here", m,
                      w.live),
          std::countr_zero(w.live & ~m), "all threads of a warp must reach the barrier together"};
    const int lane = std::countr_zero(m);
    const std::uint32_t id = row<std::uint32_t>(w, i.o[0])[lane];
    if (id >= 16) throw fault{fmt::format("barrier {} does not exist", id), lane, "use 0 to 15"};
    const int count = i.o[1] == no_row ? -1 : static_cast<int>(row<std::uint32_t>(w, i.o[1])[lane]);
    barrier_state& b = cta_.barriers[id];
    if (b.arrived_threads != 0 && b.expected_threads != count)
      throw fault{fmt::format("barrier {} is used with {} and {} threads at once", id,
                              b.expected_threads, count),
                  lane, "use one thread count for a barrier"};
    if (count != -1 && (count <= 0 || count % warp_lanes != 0))
      throw fault{fmt::format("barrier {} with a count of {} threads", id, count), lane,
                  "use a positive multiple of 32"};
    b.expected_threads = count;
    b.arrived_threads += warp_lanes;
    ++pc;
    w.stack.back().pc = pc;
    const bool waits = i.op == opcode::barrier;
    if (waits) w.waiting_barrier = static_cast<int>(id);
    release_if_full(static_cast<int>(id));
    return waits ? step::barrier : step::next;
  }

  void release_if_full(int id) {
    barrier_state& b = cta_.barriers[id];
    if (b.arrived_threads == 0) return;
    int expected = b.expected_threads;
    if (expected < 0)
      expected =
          warp_lanes * static_cast<int>(std::count_if(cta_.warps.begin(), cta_.warps.end(),
                                                      [](const warp& w) { return w.live != 0; }));
    if (b.arrived_threads < expected) return;
    b.arrived_threads = 0;
    ++cta_.version;
    for (warp& w : cta_.warps)
      if (w.waiting_barrier == id) w.waiting_barrier = -1;
  }

  const launch_context& launch_;
  const program& code_;
  const options& options_;
  cta cta_;
  int threads_ = 0;
  std::uint64_t draws_ = 0;
  std::vector<std::byte> storage_;
  std::vector<std::uint32_t> predicates_;
};

}  // namespace

cta_counts run_cta(const launch_context& launch, std::uint64_t linear, const options& o) {
  return cta_runner(launch, linear, o).run();
}

}  // namespace kvproof::gpu::emulator
