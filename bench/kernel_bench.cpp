// Times the kernels on a CUDA device beside their byte floors: bytes that must move over the read
// rate that a plain kernel reaches in the same run. Pages are valid (made by the reference once,
// then repeated), page ids shuffled, and data rotate over at least 600 MB, so that no cache serves
// them. Correctness is `kvproof verify`'s business.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <numeric>

#include "gpu/launch/launch.hpp"
#include "reference/formats/page_codec.hpp"
#include "reference/numerics/half.hpp"
#include "reference/spec/error.hpp"

namespace {

using namespace kvproof;
using nlohmann::json;

constexpr int repeats = 9;

struct shape {
  const char* name;
  int batch, kv_heads, ratio, head_dim;
  std::int64_t tokens;
};
constexpr shape shapes[] = {
    {"Llama-3-8B b64 16K", 64, 8, 4, 128, 16384}, {"Llama-3-8B b64 4K", 64, 8, 4, 128, 4096},
    {"Llama-3-8B b1 64K", 1, 8, 4, 128, 65536},   {"Llama-3-8B b1 4K", 1, 8, 4, 128, 4096},
    {"Llama-2-7B b64 4K", 64, 32, 1, 128, 4096},  {"Qwen2.5-7B b64 16K", 64, 4, 7, 128, 16384},
    {"SmolLM2 b64 4K", 64, 3, 3, 64, 4096}};

std::uint64_t next_random(std::uint64_t& x) {
  x ^= x << 13;
  x ^= x >> 7;
  return x ^= x << 17;
}

std::vector<std::uint16_t> random_halves(std::size_t n) {
  std::uint64_t state = 88172645463325252ULL;
  std::vector<std::uint16_t> x(n);
  for (std::uint16_t& h : x)
    h = reference::float_to_half(static_cast<float>(next_random(state) >> 40) * 0x1p-22f - 2.0f);
  return x;
}

template <typename T>
void upload(gpu::device& dev, gpu::device_ptr to, const std::vector<T>& v) {
  dev.copy_to_device(to, std::as_bytes(std::span(v)));
}

// Median time of one call in us; call(i) launches the i-th rotation.
template <typename Call>
double time_us(gpu::device& dev, int calls, const Call& call) {
  const auto begin = dev.create_event(), end = dev.create_event();
  call(0);
  dev.synchronize();
  std::vector<double> times;
  for (int r = 0; r < repeats; ++r) {
    dev.record(*begin, nullptr);
    for (int i = 0; i < calls; ++i) call(i);
    dev.record(*end, nullptr);
    times.push_back(dev.elapsed_us(*begin, *end) / calls);
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in)
    throw spec::input_error(fmt::format("cannot read {}; build the target bench_kernels", path));
  return {std::istreambuf_iterator<char>(in), {}};
}

double read_rate(gpu::device& dev) {  // bytes per us
  struct {
    std::uint64_t data, sink;
    std::int64_t vectors;
  } params{};
  const std::int64_t bytes = std::int64_t{4} << 30;
  const gpu::device_buffer data(dev, bytes), sink(dev, 256);
  params = {static_cast<std::uint64_t>(data.get()), static_cast<std::uint64_t>(sink.get()),
            bytes / 16};
  const std::string ptx = read_file(KVPROOF_READ_PTX);
  const auto kernel = dev.load({"read_bandwidth", ptx, {}}, "read_bandwidth_kernel");
  const gpu::launch_shape launch{
      {static_cast<std::uint32_t>(4 * dev.info().num_multiprocessors), 1, 1},
      {512, 1, 1},
      {1, 1, 1},
      0};
  const double us = time_us(
      dev, 4, [&](int) { dev.launch(*kernel, launch, std::as_bytes(std::span(&params, 1))); });
  return static_cast<double>(bytes) / us;
}

json bench_decode(gpu::device& dev, const shape& s, const spec::kv_format& format, bool with_scores,
                  double rate) {
  const std::int64_t page_bytes = spec::page_size_bytes(format, s.head_dim);
  const std::int64_t heads = std::int64_t{s.batch} * s.kv_heads,
                     pages = spec::pages_for_tokens(s.tokens);
  const std::int64_t set_pages = heads * pages, bytes = set_pages * page_bytes;
  const auto sets = static_cast<int>(std::clamp<std::int64_t>(600'000'000 / bytes + 1, 1, 24));
  const gpu::device_buffer pool(dev, sets * bytes);
  // 64 different pages, repeated.
  std::vector<std::byte> some(static_cast<std::size_t>(64 * page_bytes));
  const std::vector<std::uint16_t> values =
      random_halves(static_cast<std::size_t>(64 * spec::tokens_per_page * s.head_dim));
  std::vector<std::span<std::byte>> views;
  for (std::int64_t i = 0; i < 64; ++i)
    views.push_back(std::span(some).subspan(static_cast<std::size_t>(i * page_bytes),
                                            static_cast<std::size_t>(page_bytes)));
  reference::append_tokens(format, s.head_dim, values, values, 0, views);
  std::vector<std::byte> chunk;
  while (std::ssize(chunk) < (64 << 20)) chunk.insert(chunk.end(), some.begin(), some.end());
  for (std::int64_t at = 0; at < sets * bytes; at += std::ssize(chunk)) {
    dev.copy_to_device(pool.get() + at,
                       std::span(chunk).first(static_cast<std::size_t>(
                           std::min<std::int64_t>(std::ssize(chunk), sets * bytes - at))));
  }
  std::vector<std::int32_t> table(static_cast<std::size_t>(sets * set_pages));
  std::iota(table.begin(), table.end(), 0);
  std::uint64_t state = 1234567;
  for (int set = 0; set < sets; ++set) {
    for (std::int64_t i = set_pages; i > 1; --i) {
      std::swap(table[static_cast<std::size_t>(set * set_pages + i - 1)],
                table[static_cast<std::size_t>(
                    set * set_pages + static_cast<std::int64_t>(next_random(state) %
                                                                static_cast<std::uint64_t>(i)))]);
    }
  }
  const std::vector<std::uint16_t> q =
      random_halves(static_cast<std::size_t>(heads * s.ratio * s.head_dim));
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(heads),
                                          static_cast<std::int32_t>(s.tokens)),
      none(lengths.size(), 0);
  const gpu::device_buffer table_buffer(dev, std::ssize(table) * 4),
      q_buffer(dev, std::ssize(q) * 2), length_buffer(dev, heads * 4), none_buffer(dev, heads * 4),
      out(dev, heads * s.ratio * s.head_dim * 4), state_buffer(dev, heads * s.ratio * 8),
      scores(dev, with_scores ? heads * s.tokens * s.ratio * 4 : 0);
  upload(dev, table_buffer.get(), table);
  upload(dev, q_buffer.get(), q);
  upload(dev, length_buffer.get(), lengths);
  upload(dev, none_buffer.get(), none);
  gpu::decode_args a{};
  a.format = format.id;
  a.head_dim = s.head_dim;
  a.batch = s.batch;
  a.kv_heads = s.kv_heads;
  a.gqa_ratio = s.ratio;
  a.softmax_scale = 0.088f;
  a.max_quantized = static_cast<int>(s.tokens);
  a.q = q_buffer.get();
  a.max_pages = static_cast<int>(pages);
  a.pages = pool.get();
  a.num_quantized = length_buffer.get();
  a.num_recent = none_buffer.get();
  a.out = out.get();
  a.state = state_buffer.get();
  a.scores = with_scores ? scores.get() : gpu::device_ptr{};
  a.score_capacity = s.tokens;
  const gpu::device_buffer workspace(dev, gpu::decode_workspace_bytes(a));
  dev.fill(workspace.get(), std::byte{0}, workspace.size_bytes());
  a.workspace = workspace.get();
  const double us = time_us(dev, std::max(sets, 8), [&](int i) {
    a.page_table = table_buffer.get() + (i % sets) * set_pages * 4;
    gpu::decode(dev, a);
  });
  const double floor = static_cast<double>(bytes) / rate;
  fmt::print("decode   {:<9} {:<20} {}  {:9.1f} us  floor {:8.1f} us  {:5.1f} %\n", format.name,
             s.name, with_scores ? "scores" : "      ", us, floor, 100 * floor / us);
  std::fflush(stdout);
  return {{"kernel", "decode"}, {"format", format.name},
          {"shape", s.name},    {"scores", with_scores},
          {"us", us},           {"cache_bytes", bytes},
          {"floor_us", floor},  {"share_of_floor", floor / us}};
}

json bench_quantize(gpu::device& dev, const spec::kv_format& format, double rate) {
  constexpr int kv_heads = 8, head_dim = 128, tokens = 16384, batch = 8;
  const std::int64_t page_bytes = spec::page_size_bytes(format, head_dim),
                     pages = spec::pages_for_tokens(tokens), heads = std::int64_t{batch} * kv_heads;
  const std::int64_t elements = heads * tokens * head_dim;
  const gpu::device_buffer k(dev, elements * 2), v(dev, elements * 2),
      pool(dev, heads * pages * page_bytes), table(dev, heads * pages * 4), first(dev, heads * 4),
      count(dev, heads * 4);
  const std::vector<std::uint16_t> values = random_halves(1 << 24);
  for (std::int64_t at = 0; at < elements; at += std::ssize(values)) {
    upload(dev, k.get() + 2 * at, values);
    upload(dev, v.get() + 2 * at, values);
  }
  std::vector<std::int32_t> ids(static_cast<std::size_t>(heads * pages));
  std::iota(ids.begin(), ids.end(), 0);
  upload(dev, table.get(), ids);
  upload(dev, first.get(), std::vector<std::int32_t>(static_cast<std::size_t>(heads), 0));
  upload(dev, count.get(), std::vector<std::int32_t>(static_cast<std::size_t>(heads), tokens));
  const gpu::quantize_args a{format.id,
                             head_dim,
                             batch,
                             kv_heads,
                             tokens,
                             k.get(),
                             v.get(),
                             std::int64_t{tokens} * kv_heads * head_dim,
                             std::int64_t{kv_heads} * head_dim,
                             head_dim,
                             first.get(),
                             count.get(),
                             table.get(),
                             static_cast<int>(pages),
                             pool.get()};
  const double us = time_us(dev, 4, [&](int) { gpu::quantize(dev, a); });
  const double bytes = static_cast<double>(elements * 4 + heads * pages * page_bytes),
               floor = bytes / rate;
  fmt::print(
      "quantize {:<9} b8 16K, 8 KV heads           {:9.1f} us  floor {:8.1f} us  {:5.1f} %\n",
      format.name, us, floor, 100 * floor / us);
  return {{"kernel", "quantize"},
          {"format", format.name},
          {"shape", "b8 16K, 8 KV heads, head_dim 128"},
          {"us", us},
          {"bytes", bytes},
          {"floor_us", floor},
          {"share_of_floor", floor / us}};
}

int run(const std::string& json_file, const std::string& commit) {
  std::string why_not;
  const auto dev = gpu::open_cuda_device(0, &why_not);
  if (dev == nullptr) {
    fmt::print(stderr, "bench_kernels: no GPU: {}\n", why_not);
    return 77;
  }
  const double rate = read_rate(*dev);
  fmt::print("{}, {}; plain read {:.3f} TB/s\n", dev->info().name, dev->info().driver, rate * 1e-6);
  json rows = json::array();
  for (const shape& s : shapes) {
    for (const spec::kv_format& format : spec::kv_formats) {
      for (const bool with_scores : {false, true})
        rows.push_back(bench_decode(*dev, s, format, with_scores, rate));
    }
  }
  for (const spec::kv_format& format : spec::kv_formats)
    rows.push_back(bench_quantize(*dev, format, rate));
  if (!json_file.empty()) {
    std::ofstream(json_file) << json{{"device", dev->info().name},
                                     {"driver", dev->info().driver},
                                     {"commit", commit},
                                     {"read_bytes_per_us", rate},
                                     {"rows", rows}}
                                    .dump(1)
                             << '\n';
  }
  return 0;
}

}  // namespace

// bench_kernels [JSON-FILE [COMMIT]]
int main(int argc, char** argv) {
  try {
    return run(argc > 1 ? argv[1] : "", argc > 2 ? argv[2] : "unknown");
  } catch (const std::exception& e) {
    fmt::print(stderr, "bench_kernels: {}\n", e.what());
    return 4;
  }
}
