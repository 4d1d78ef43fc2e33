// Writer and reader: what was written is read back bit for bit; the same trace gives the same
// bytes; a failed write leaves nothing behind.
#include <sys/resource.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <functional>
#include <thread>

#include "traces/trace_fixture.hpp"

namespace kvproof::traces::test {

namespace {

void check_round_trip(const attention_trace& trace) {
  const scratch_folder folder;
  write_attention_trace(folder / "a.h5", trace);
  BOOST_TEST(same_trace(read_attention_trace(folder / "a.h5"), trace));
  write_attention_trace(folder / "b.h5", trace);
  BOOST_TEST(bytes_of(folder / "a.h5") == bytes_of(folder / "b.h5"));
  BOOST_TEST(folder.num_entries() == 2);
}

void check_write_refused(const char* word, const std::function<void(attention_trace&)>& spoil) {
  const scratch_folder folder;
  const std::filesystem::path file = folder / "a.h5";
  write_bytes(file, "what was there before");
  attention_trace trace = small_trace({});
  spoil(trace);
  check_throws<spec::contract_error>([&] { write_attention_trace(file, trace); }, {word});
  BOOST_TEST(bytes_of(file) == "what was there before");
  BOOST_TEST(folder.num_entries() == 1);
}

}  // namespace

BOOST_AUTO_TEST_SUITE(round_trip)

BOOST_AUTO_TEST_CASE(token_counts_around_chunks) {
  for (const std::int64_t tokens : {0, 1, 2, 127, 128, 129, 257}) {
    BOOST_TEST_CONTEXT(tokens << " tokens") { check_round_trip(small_trace({tokens, 6, 2, 4})); }
  }
}

BOOST_AUTO_TEST_CASE(odd_shapes) {
  for (const trace_shape& shape : {trace_shape{3, 1, 1, 1}, trace_shape{7, 7, 1, 13},
                                   trace_shape{13, 9, 3, 5}, trace_shape{1, 5, 5, 127}}) {
    check_round_trip(small_trace(shape));
  }
}

BOOST_AUTO_TEST_CASE(empty_strings_and_extreme_facts) {
  attention_trace trace = small_trace({});
  trace.model.name.clear();
  trace.provenance = std::string(32 * 1024, 'p');
  trace.license.clear();
  trace.prompt_length = trace.num_tokens;
  trace.model.rope_theta = 1e300;
  trace.model.softmax_scale = 5e-324;
  trace.token_ids[0] = 2147483647;
  check_round_trip(trace);
}

BOOST_AUTO_TEST_CASE(every_layer_of_a_model) {
  attention_trace trace = small_trace({2, 2, 1, 2});
  const layer_trace one = trace.layers[0];
  trace.layers.assign(12, one);
  for (int i = 0; i < 12; ++i) trace.layers[static_cast<std::size_t>(i)].layer = i;
  check_round_trip(trace);
}

BOOST_AUTO_TEST_CASE(every_finite_half) {
  attention_trace trace = small_trace({31 * 2, 1, 1, 1024});
  for (std::size_t i = 0; i < trace.layers[0].q.size(); ++i) {
    const auto bits = static_cast<half_bits>(i % (31 * 1024));
    trace.layers[0].q[i] = static_cast<half_bits>(i < 31 * 1024 ? bits : bits | 0x8000);
  }
  check_round_trip(trace);
}

// HDF5 stamps objects with seconds unless told not to.
BOOST_AUTO_TEST_CASE(bytes_do_not_depend_on_the_time) {
  const scratch_folder folder;
  write_attention_trace(folder / "a.h5", small_trace({}));
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  write_attention_trace(folder / "b.h5", small_trace({}));
  BOOST_TEST(bytes_of(folder / "a.h5") == bytes_of(folder / "b.h5"));
}

BOOST_AUTO_TEST_CASE(replaces_an_older_file) {
  const scratch_folder folder;
  write_attention_trace(folder / "a.h5", small_trace({9, 2, 1, 4}));
  write_attention_trace(folder / "a.h5", small_trace({}));
  BOOST_TEST(same_trace(read_attention_trace(folder / "a.h5"), small_trace({})));
  BOOST_TEST(folder.num_entries() == 1);
}

BOOST_AUTO_TEST_CASE(shipped_trace) {
  const attention_trace trace = read_attention_trace("traces/data/smollm2-135m-instruct.h5");
  BOOST_TEST(trace.num_tokens == 640);
  BOOST_TEST(trace.prompt_length == 512);
  BOOST_TEST(trace.model.query_heads == 9);
  BOOST_TEST(trace.model.kv_heads == 3);
  BOOST_TEST(trace.model.head_dim == 64);
  BOOST_TEST(trace.model.softmax_scale == 0.125);
  BOOST_TEST(trace.model.rope_theta == 1e5);
  BOOST_TEST(trace.license == "Apache-2.0");
  std::vector<int> layers;
  for (const layer_trace& layer : trace.layers) layers.push_back(layer.layer);
  BOOST_TEST(layers == (std::vector<int>{0, 9, 19, 29}), boost::test_tools::per_element());
  check_round_trip(trace);
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(writer)

BOOST_AUTO_TEST_CASE(refuses_invalid_traces) {
  check_write_refused("no layers", [](auto& t) { t.layers.clear(); });
  check_write_refused("layer 2 after layer 10",
                      [](auto& t) { std::swap(t.layers[0], t.layers[1]); });
  check_write_refused("layer 10 after layer 10", [](auto& t) { t.layers[0] = t.layers[1]; });
  check_write_refused("num_layers = 10", [](auto& t) { t.model.num_layers = 10; });
  check_write_refused("multiple of kv_heads", [](auto& t) { t.model.kv_heads = 4; });
  check_write_refused("head_dim = 0", [](auto& t) { t.model.head_dim = 0; });
  check_write_refused("query_heads = 4097", [](auto& t) { t.model.query_heads = 4097; });
  check_write_refused("softmax_scale", [](auto& t) { t.model.softmax_scale = 0; });
  check_write_refused("rope_theta", [](auto& t) { t.model.rope_theta = -HUGE_VAL; });
  check_write_refused("prompt_length = 6", [](auto& t) { t.prompt_length = 6; });
  check_write_refused("prompt_length = -1", [](auto& t) { t.prompt_length = -1; });
  check_write_refused("4 token_ids", [](auto& t) { t.token_ids.pop_back(); });
  check_write_refused("negative", [](auto& t) { t.token_ids[3] = -1; });
  check_write_refused("layer 10: v has 41 elements", [](auto& t) { t.layers[1].v.push_back(0); });
  check_write_refused("UTF-8", [](auto& t) { t.license = "\xc3("; });
  check_write_refused("UTF-8", [](auto& t) { t.provenance = std::string("a\0b", 3); });
  check_write_refused("limit", [](auto& t) { t.provenance.assign(32 * 1024 + 1, 'p'); });
  check_write_refused("k: layer 2, token 1, kv head 1, channel 3 is 0xfc00 (infinity)",
                      [](auto& t) { t.layers[0].k[1 * 8 + 1 * 4 + 3] = 0xfc00; });
}

BOOST_AUTO_TEST_CASE(missing_folder) {
  const scratch_folder folder;
  check_throws<trace_error>([&] { write_attention_trace(folder / "no/a.h5", small_trace({})); },
                            {"no/a.h5: cannot be written: No such file", "check the folder"});
  BOOST_TEST(folder.num_entries() == 0);
}

BOOST_AUTO_TEST_CASE(target_is_a_folder) {
  const scratch_folder folder;
  std::filesystem::create_directories(folder / "a.h5/b");
  check_throws<trace_error>([&] { write_attention_trace(folder / "a.h5", small_trace({})); },
                            {"a.h5: cannot be written"});
  BOOST_TEST(folder.num_entries() == 1);
}

BOOST_AUTO_TEST_CASE(no_space) {
  const scratch_folder folder;
  rlimit before = {};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small = {.rlim_cur = 4096, .rlim_max = before.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  const auto write = [&] { write_attention_trace(folder / "a.h5", small_trace({999, 8, 2, 16})); };
  check_throws<trace_error>(
      write, {"a.h5: cannot be written: file write failed: File too large; check", "free space"});
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, SIG_DFL);
  BOOST_TEST(folder.num_entries() == 0);
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test
