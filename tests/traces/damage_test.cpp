// A cut or damaged file is a typed error or the same trace, never other data.
#include <fcntl.h>
#include <hdf5.h>

#include "traces/trace_fixture.hpp"

// HDF5 itself loses memory when it gives up on damaged metadata.
extern "C" const char* __lsan_default_suppressions() { return "leak:H5FL__malloc\n"; }

namespace kvproof::traces::test {

namespace {

constexpr const char* shipped = "traces/data/smollm2-135m-instruct.h5";

enum class outcome { error, same, other };

outcome read_damaged(const std::filesystem::path& file, const attention_trace& original) {
  try {
    return same_trace(read_attention_trace(file), original) ? outcome::same : outcome::other;
  } catch (const trace_error& e) {
    BOOST_TEST(std::string(e.what()).find('\n') == std::string::npos);
    return outcome::error;
  }
}

// Which bytes of the file are chunks of datasets; the others are metadata and gaps.
std::vector<bool> chunk_bytes(const std::filesystem::path& file) {
  std::vector<bool> in_chunk(std::filesystem::file_size(file));
  const hid_t opened = H5Fopen(file.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  BOOST_REQUIRE(opened >= 0);
  const auto mark = [](hid_t root, const char* name, const H5O_info_t* info, void* out) -> herr_t {
    if (info->type != H5O_TYPE_DATASET) return 0;
    const hid_t dataset = H5Dopen2(root, name, H5P_DEFAULT);
    const hid_t space = H5Dget_space(dataset);
    hsize_t num_chunks = 0;
    BOOST_REQUIRE(H5Dget_num_chunks(dataset, space, &num_chunks) >= 0);
    for (hsize_t i = 0; i < num_chunks; ++i) {
      haddr_t address = 0;
      hsize_t size = 0;
      BOOST_REQUIRE(H5Dget_chunk_info(dataset, space, i, nullptr, nullptr, &address, &size) >= 0);
      const auto begin =
          static_cast<std::vector<bool>*>(out)->begin() + static_cast<std::ptrdiff_t>(address);
      std::fill_n(begin, size, true);
    }
    H5Sclose(space);
    H5Dclose(dataset);
    return 0;
  };
  BOOST_REQUIRE(H5Ovisit2(opened, H5_INDEX_NAME, H5_ITER_INC, mark, &in_chunk, H5O_INFO_BASIC) >=
                0);
  H5Fclose(opened);
  return in_chunk;
}

// Flips one bit at a time, `num_flips` of them evenly spread over the bytes at `places` and each
// in another bit than the one before. Returns how many of them are errors; none gives other data.
int flip_bits(const std::filesystem::path& file, const std::vector<std::size_t>& places,
              std::size_t num_flips) {
  const attention_trace original = read_attention_trace(file);
  const std::string bytes = bytes_of(file);
  const int descriptor = open(file.c_str(), O_WRONLY | O_CLOEXEC);
  BOOST_REQUIRE(descriptor >= 0);
  const auto put = [&](std::size_t at, int flip) {
    const auto byte = static_cast<char>(bytes[at] ^ flip);
    BOOST_REQUIRE(pwrite(descriptor, &byte, 1, static_cast<off_t>(at)) == 1);
  };
  int num_errors = 0;
  for (std::size_t i = 0; i < num_flips; ++i) {
    const std::size_t at = places[places.size() * i / num_flips];
    const int bit = static_cast<int>(i * 5 % 8);
    BOOST_TEST_CONTEXT("byte " << at << ", bit " << bit) {
      put(at, 1 << bit);
      const outcome result = read_damaged(file, original);
      put(at, 0);
      BOOST_TEST((result != outcome::other));
      num_errors += result == outcome::error ? 1 : 0;
    }
  }
  close(descriptor);
  BOOST_TEST(same_trace(read_attention_trace(file), original));
  return num_errors;
}

herr_t copy_attribute(hid_t from, const char* name, const H5A_info_t* /*info*/, void* to) {
  const hid_t source = H5Aopen(from, name, H5P_DEFAULT);
  const hid_t type = H5Aget_type(source);
  const hid_t space = H5Aget_space(source);
  const hid_t copy =
      H5Acreate2(*static_cast<hid_t*>(to), name, type, space, H5P_DEFAULT, H5P_DEFAULT);
  std::string value(H5Tget_size(type), '\0');
  BOOST_REQUIRE(H5Aread(source, type, value.data()) >= 0);
  BOOST_REQUIRE(H5Awrite(copy, type, value.data()) >= 0);
  H5Aclose(copy);
  H5Aclose(source);
  H5Tclose(type);
  H5Sclose(space);
  return 0;
}

// How a dataset is stored, without the chunk index that the original chose.
hid_t with_old_index(hid_t original) {
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  hsize_t chunk[3] = {};
  const int rank = H5Pget_chunk(original, 3, chunk);
  BOOST_REQUIRE(rank > 0);
  H5Pset_chunk(creation, rank, chunk);
  H5Pset_shuffle(creation);
  H5Pset_deflate(creation, 6);
  H5Pset_fletcher32(creation);
  H5Pclose(original);
  return creation;
}

// Called for the root, groups and datasets of a file, parents first.
herr_t copy_object(hid_t root, const char* name, const H5O_info_t* info, void* file) {
  const hid_t to = *static_cast<hid_t*>(file);
  const hid_t source = H5Oopen(root, name, H5P_DEFAULT);
  hid_t copy = -1;
  if (info->type == H5O_TYPE_DATASET) {
    const hid_t type = H5Dget_type(source);
    const hid_t space = H5Dget_space(source);
    const hid_t creation = with_old_index(H5Dget_create_plist(source));
    copy = H5Dcreate2(to, name, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    std::string values(
        static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)) * H5Tget_size(type), '\0');
    BOOST_REQUIRE(H5Dread(source, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    BOOST_REQUIRE(H5Dwrite(copy, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
    H5Pclose(creation);
    H5Sclose(space);
    H5Tclose(type);
  } else {
    copy = name == std::string_view(".")
               ? H5Oopen(to, "/", H5P_DEFAULT)
               : H5Gcreate2(to, name, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  }
  BOOST_REQUIRE(copy >= 0);
  BOOST_REQUIRE(H5Aiterate2(source, H5_INDEX_NAME, H5_ITER_INC, nullptr, copy_attribute, &copy) >=
                0);
  H5Oclose(copy);
  H5Oclose(source);
  return 0;
}

// The same trace with HDF5's default metadata, which have no checksums.
void copy_with_old_metadata(const std::filesystem::path& from, const std::filesystem::path& to) {
  const hid_t source = H5Fopen(from.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT);
  hid_t copy = H5Fcreate(to.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  BOOST_REQUIRE(H5Ovisit2(source, H5_INDEX_NAME, H5_ITER_INC, copy_object, &copy, H5O_INFO_BASIC) >=
                0);
  BOOST_REQUIRE(H5Fclose(copy) >= 0);
  BOOST_REQUIRE(H5Fclose(source) >= 0);
  BOOST_REQUIRE(int{bytes_of(to)[8]} == 0);  // superblock version
}

struct places_of {
  std::vector<std::size_t> metadata;
  std::vector<std::size_t> data;

  explicit places_of(const std::filesystem::path& file) {
    const std::vector<bool> in_chunk = chunk_bytes(file);
    for (std::size_t at = 0; at < in_chunk.size(); ++at) {
      (in_chunk[at] ? data : metadata).push_back(at);
    }
  }
};

}  // namespace

BOOST_AUTO_TEST_SUITE(truncation)

BOOST_AUTO_TEST_CASE(every_cut_is_a_typed_error) {
  const scratch_folder folder;
  write_attention_trace(folder / "whole.h5", small_trace({130, 4, 2, 8}));
  const std::string whole = bytes_of(folder / "whole.h5");
  std::vector<std::size_t> cuts = {whole.size() - 1};
  for (std::size_t i = 0; i < 100; ++i) cuts.push_back(i);
  for (std::size_t i = 1; i < 200; ++i) cuts.push_back(whole.size() * i / 200);
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
  write_bytes(folder / "cut.h5", whole);
  for (std::size_t percent = 99; percent > 0; --percent) {
    std::filesystem::resize_file(folder / "cut.h5", whole.size() * percent / 100);
    check_refused<truncated_error>(
        folder / "cut.h5", {"should have at least " + std::to_string(whole.size()), "truncated"});
  }
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(corruption)

BOOST_AUTO_TEST_CASE(superblock_with_checksum) {
  const scratch_folder folder;
  write_attention_trace(folder / "written.h5", small_trace({}));
  for (const std::filesystem::path& file :
       {folder / "written.h5", std::filesystem::path(shipped)}) {
    BOOST_TEST(int{bytes_of(file)[8]} == 3);  // version
  }
}

// The whole trace, facts and strings included: all that carries meaning lies under checksums.
BOOST_AUTO_TEST_CASE(flipped_bits_of_a_written_file) {
  const scratch_folder folder;
  const std::filesystem::path file = folder / "written.h5";
  write_attention_trace(file, small_trace({140, 4, 2, 8}));
  const places_of places(file);
  BOOST_TEST(flip_bits(file, places.data, 600) == 600);
  BOOST_TEST(flip_bits(file, places.metadata, 1400) > 700);  // the others lie in gaps
}

BOOST_AUTO_TEST_CASE(flipped_bits_of_the_shipped_trace) {
  const scratch_folder folder;
  const std::filesystem::path file = folder / "shipped.h5";
  write_bytes(file, bytes_of(shipped));
  const places_of places(file);
  BOOST_TEST(flip_bits(file, places.data, 100) == 100);
  BOOST_TEST(flip_bits(file, places.metadata, 300) > 150);
}

BOOST_AUTO_TEST_CASE(flipped_bits_of_data_under_old_metadata) {
  const scratch_folder folder;
  const std::filesystem::path file = folder / "old.h5";
  write_attention_trace(folder / "written.h5", small_trace({140, 4, 2, 8}));
  copy_with_old_metadata(folder / "written.h5", file);
  BOOST_TEST(same_trace(read_attention_trace(file), small_trace({140, 4, 2, 8})));
  const places_of places(file);
  BOOST_TEST(flip_bits(file, places.data, 200) == 200);
}

// The place of a chunk in an index without checksum: HDF5 would find none there and read zeros.
BOOST_AUTO_TEST_CASE(moved_chunk_under_old_metadata) {
  const scratch_folder folder;
  const attention_trace trace = small_trace({140, 4, 2, 8});
  write_attention_trace(folder / "written.h5", trace);
  copy_with_old_metadata(folder / "written.h5", folder / "old.h5");
  std::string bytes = bytes_of(folder / "old.h5");
  // Three 64-bit coordinates of a chunk and the one of the element size: 128, 0, 0, 0.
  const std::string key = std::string("\x80\0\0\0\0\0\0\0", 8) + std::string(24, '\0');
  int num_keys = 0;
  for (std::size_t at = bytes.find(key); at != std::string::npos; at = bytes.find(key, at + 1)) {
    ++num_keys;
    bytes[at + 2] = 1;
    write_bytes(folder / "damaged.h5", bytes);
    bytes[at + 2] = 0;
    check_refused<truncated_error>(folder / "damaged.h5", {"are not all stored"});
  }
  BOOST_TEST(num_keys == 6);  // q, k, v of two layers
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
