// A cut or damaged file is a typed error or the same trace, never other data.
#include <random>

#include "traces/trace_fixture.hpp"

// HDF5 itself loses memory when it gives up on damaged metadata.
extern "C" const char* __lsan_default_suppressions() { return "leak:H5FL__malloc\n"; }

namespace kvproof::traces::test {

namespace {

constexpr const char* shipped = "traces/data/smollm2-135m-instruct.h5";

enum class outcome { error, same, other };

template <class Same>
outcome read_damaged(const std::filesystem::path& file, const attention_trace& original,
                     const Same& same) {
  try {
    return same(read_attention_trace(file), original) ? outcome::same : outcome::other;
  } catch (const trace_error& e) {
    BOOST_TEST(std::string(e.what()).find('\n') == std::string::npos);
    return outcome::error;
  }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(truncation)

BOOST_AUTO_TEST_CASE(every_cut_is_a_typed_error) {
  const scratch_folder folder;
  write_attention_trace(folder / "whole.h5", small_trace({130, 4, 2, 8}));
  const std::string whole = bytes_of(folder / "whole.h5");
  std::vector<std::size_t> cuts = {0, 1, 7, 8, 9, 27, 28, 35, 36, 47, 48, 49, whole.size() - 1};
  for (std::size_t i = 1; i < 40; ++i) cuts.push_back(whole.size() * i / 40);
  for (const std::size_t cut : cuts) {
    BOOST_TEST_CONTEXT("cut at " << cut << " of " << whole.size()) {
      write_bytes(folder / "cut.h5", std::string_view(whole).substr(0, cut));
      if (cut == 0) {
        check_refused<not_hdf5_error>(folder / "cut.h5", {"empty"});
      } else {
        check_refused<truncated_error>(folder / "cut.h5", {"truncated", "copy or record"});
      }
    }
  }
}

BOOST_AUTO_TEST_CASE(shipped_trace_cut) {
  const scratch_folder folder;
  const std::string whole = bytes_of(shipped);
  for (const std::size_t percent : {60, 99}) {
    write_bytes(folder / "cut.h5", std::string_view(whole).substr(0, whole.size() * percent / 100));
    check_refused<truncated_error>(
        folder / "cut.h5", {"should have at least " + std::to_string(whole.size()), "truncated"});
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(corruption)

// Holds for the whole trace, facts and strings included, as kvproof writes all of it under
// checksums.
BOOST_AUTO_TEST_CASE(flipped_bytes_of_a_written_file) {
  const scratch_folder folder;
  const attention_trace trace = small_trace({40, 4, 2, 8});
  write_attention_trace(folder / "whole.h5", trace);
  std::string bytes = bytes_of(folder / "whole.h5");
  std::mt19937_64 random(7);
  int num_errors = 0;
  for (int i = 0; i < 300; ++i) {
    const std::size_t at = random() % bytes.size();
    const auto flip = static_cast<char>(1 + random() % 255);
    BOOST_TEST_CONTEXT("byte " << at << " ^ " << int{flip}) {
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      write_bytes(folder / "damaged.h5", bytes);
      bytes[at] = static_cast<char>(bytes[at] ^ flip);
      const outcome result = read_damaged(folder / "damaged.h5", trace, same_trace);
      BOOST_TEST((result != outcome::other));
      num_errors += result == outcome::error ? 1 : 0;
    }
  }
  BOOST_TEST(num_errors > 150);  // most bytes carry something
}

// Older metadata have no checksums; the data do.
BOOST_AUTO_TEST_CASE(flipped_bytes_of_the_shipped_trace) {
  const scratch_folder folder;
  const attention_trace trace = read_attention_trace(shipped);
  std::string bytes = bytes_of(shipped);
  std::mt19937_64 random(7);
  for (int i = 0; i < 20; ++i) {
    const std::size_t at = bytes.size() / 10 + random() % (bytes.size() * 8 / 10);
    BOOST_TEST_CONTEXT("byte " << at) {
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
      write_bytes(folder / "damaged.h5", bytes);
      bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
      BOOST_TEST((read_damaged(folder / "damaged.h5", trace, same_data) != outcome::other));
    }
  }
}

// The place of a chunk in an index without checksum: HDF5 would find none there and read zeros.
BOOST_AUTO_TEST_CASE(moved_chunk_of_the_shipped_trace) {
  const scratch_folder folder;
  const attention_trace trace = read_attention_trace(shipped);
  std::string bytes = bytes_of(shipped);
  // Three 64-bit coordinates of a chunk and the one of the element size: 128, 0, 0, 0.
  const std::string key = std::string("\x80\0\0\0\0\0\0\0", 8) + std::string(24, '\0');
  int num_keys = 0;
  for (std::size_t at = bytes.find(key); at != std::string::npos; at = bytes.find(key, at + 1)) {
    ++num_keys;
    bytes[at + 2] = 1;
    write_bytes(folder / "damaged.h5", bytes);
    bytes[at + 2] = 0;
    BOOST_TEST((read_damaged(folder / "damaged.h5", trace, same_data) != outcome::other));
    std::filesystem::remove(folder / "damaged.h5");
  }
  BOOST_TEST(num_keys >= 12);  // q, k, v of four layers
}

BOOST_AUTO_TEST_CASE(damaged_chunk_names_its_dataset) {
  const scratch_folder folder;
  std::string bytes = bytes_of(shipped);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_bytes(folder / "damaged.h5", bytes);
  check_refused<truncated_error>(folder / "damaged.h5",
                                 {"/layers/", "cannot be read (", "): damaged", "copy or record"});
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test
