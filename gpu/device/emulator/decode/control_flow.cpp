#include "gpu/device/emulator/decode/control_flow.hpp"

namespace kvproof::gpu::emulator {
namespace {

struct graph {
  std::vector<int> leader;    // first instruction of a block
  std::vector<int> block_of;  // by instruction
  std::vector<std::vector<int>> successors;
};

bool ends_block(const instruction& i) { return i.op == opcode::branch || i.op == opcode::exit; }

graph build(const std::vector<instruction>& code) {
  const int n = static_cast<int>(code.size());
  std::vector<char> starts(code.size() + 1, 0);
  starts[0] = 1;
  for (int k = 0; k < n; ++k) {
    if (!ends_block(code[static_cast<std::size_t>(k)])) continue;
    starts[static_cast<std::size_t>(k) + 1] = 1;
    if (code[static_cast<std::size_t>(k)].op == opcode::branch)
      starts[static_cast<std::size_t>(code[static_cast<std::size_t>(k)].target)] = 1;
  }
  graph g;
  for (int k = 0; k < n; ++k) {
    if (starts[static_cast<std::size_t>(k)] != 0) g.leader.push_back(k);
    g.block_of.push_back(static_cast<int>(g.leader.size()) - 1);
  }
  const int blocks = static_cast<int>(g.leader.size());
  g.block_of.push_back(blocks);  // the exit
  for (int b = 0; b < blocks; ++b) {
    const int last = (b + 1 < blocks ? g.leader[static_cast<std::size_t>(b) + 1] : n) - 1;
    const instruction& i = code[static_cast<std::size_t>(last)];
    std::vector<int> to;
    if (i.op == opcode::branch) to.push_back(g.block_of[static_cast<std::size_t>(i.target)]);
    if (i.op == opcode::exit) to.push_back(blocks);
    if (!ends_block(i) || i.guard >= 0) to.push_back(b + 1);
    g.successors.push_back(std::move(to));
  }
  g.leader.push_back(n);
  return g;
}

}  // namespace

void find_reconvergence(std::vector<instruction>& code) {
  if (code.empty()) return;
  const graph g = build(code);
  const int exit_block = static_cast<int>(g.leader.size()) - 1;
  std::vector<std::vector<int>> predecessors(g.leader.size());
  for (int b = 0; b < exit_block; ++b)
    for (const int s : g.successors[static_cast<std::size_t>(b)])
      predecessors[static_cast<std::size_t>(s)].push_back(b);

  // Post-order of the reversed graph from the exit, then the dominator iteration of Cooper et al.
  std::vector<int> order;
  std::vector<int> number(g.leader.size(), -1);
  std::vector<char> seen(g.leader.size(), 0);
  std::vector<std::pair<int, std::size_t>> walk{{exit_block, 0}};
  seen[static_cast<std::size_t>(exit_block)] = 1;
  while (!walk.empty()) {
    auto& [b, next] = walk.back();
    const auto& to = predecessors[static_cast<std::size_t>(b)];
    if (next < to.size()) {
      const int p = to[next++];
      if (seen[static_cast<std::size_t>(p)] == 0) {
        seen[static_cast<std::size_t>(p)] = 1;
        walk.emplace_back(p, 0);
      }
    } else {
      number[static_cast<std::size_t>(b)] = static_cast<int>(order.size());
      order.push_back(b);
      walk.pop_back();
    }
  }
  std::vector<int> post(g.leader.size(), -1);
  post[static_cast<std::size_t>(exit_block)] = exit_block;
  const auto intersect = [&](int a, int b) {
    while (a != b) {
      while (number[static_cast<std::size_t>(a)] < number[static_cast<std::size_t>(b)])
        a = post[static_cast<std::size_t>(a)];
      while (number[static_cast<std::size_t>(b)] < number[static_cast<std::size_t>(a)])
        b = post[static_cast<std::size_t>(b)];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (auto at = order.rbegin(); at != order.rend(); ++at) {
      if (*at == exit_block) continue;
      int best = -1;
      for (const int s : g.successors[static_cast<std::size_t>(*at)]) {
        if (post[static_cast<std::size_t>(s)] < 0) continue;
        best = best < 0 ? s : intersect(best, s);
      }
      if (best != post[static_cast<std::size_t>(*at)]) {
        post[static_cast<std::size_t>(*at)] = best;
        changed = true;
      }
    }
  }
  for (std::size_t k = 0; k < code.size(); ++k) {
    if (code[k].op != opcode::branch) continue;
    const int p = post[static_cast<std::size_t>(g.block_of[k])];
    code[k].reconverge =
        p < 0 ? static_cast<int>(code.size()) : g.leader[static_cast<std::size_t>(p)];
  }
}

}  // namespace kvproof::gpu::emulator
