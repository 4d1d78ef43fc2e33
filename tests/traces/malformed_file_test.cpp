// Every way in which a file can break schema v1 has its typed error, with file, place and remedy.
// Each case takes a valid file and spoils one thing through the C API of HDF5.
#include <hdf5.h>

#include <cmath>
#include <functional>

#include "traces/trace_fixture.hpp"

namespace kvproof::traces::test {

namespace {

// A valid trace of 5 tokens, 6 query heads, 2 KV heads, head_dim 4, layers 2 and 10.
class spoiled_file {
 public:
  explicit spoiled_file(const std::function<void(hid_t)>& spoil) : path(folder_ / "spoiled.h5") {
    write_attention_trace(path, small_trace({}));
    const hid_t file = H5Fopen(path.c_str(), H5F_ACC_RDWR, H5P_DEFAULT);
    BOOST_REQUIRE(file >= 0);
    spoil(file);
    BOOST_REQUIRE(H5Fclose(file) >= 0);
    BOOST_REQUIRE(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);
  }

 private:
  scratch_folder folder_;

 public:
  const std::filesystem::path path;
};

void set_attribute(hid_t file, const char* object, const char* name, hid_t type, const void* value,
                   hsize_t count = 1) {
  if (H5Aexists_by_name(file, object, name, H5P_DEFAULT) > 0) {
    H5Adelete_by_name(file, object, name, H5P_DEFAULT);
  }
  const hid_t space = count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &count, nullptr);
  const hid_t attribute =
      H5Acreate_by_name(file, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
  BOOST_REQUIRE(H5Awrite(attribute, type, value) >= 0);
  H5Aclose(attribute);
  H5Sclose(space);
}

void set_integer(hid_t file, const char* object, const char* name, std::int64_t value) {
  set_attribute(file, object, name, H5T_STD_I64LE, &value);
}

void set_text(hid_t file, const char* object, const char* name, const char* text) {
  const hid_t type = H5Tcopy(H5T_C_S1);
  H5Tset_size(type, H5T_VARIABLE);
  set_attribute(file, object, name, type, &text);
  H5Tclose(type);
}

struct float_fields {
  std::size_t sign, exponent, exponent_bits, fraction_bits, bias;
  H5T_order_t order;
};

hid_t float_type(const float_fields& f) {
  const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
  H5Tset_fields(type, f.sign, f.exponent, f.exponent_bits, 0, f.fraction_bits);
  H5Tset_size(type, 2);
  H5Tset_ebias(type, f.bias);
  H5Tset_order(type, f.order);
  return type;
}

hid_t half() { return float_type({15, 10, 5, 10, 15, H5T_ORDER_LE}); }

struct dataset_options {
  std::vector<hsize_t> shape = {5, 2, 4};
  std::vector<hsize_t> chunk = {};  // empty: contiguous
  std::function<void(hid_t)> creation = [](hid_t p) { H5Pset_fletcher32(p); };
  bool write = true;
  std::string dtype = "float16";  // empty: none
};

// Replaces a dataset by one of zeros. Takes the type over.
void set_dataset(hid_t file, const char* path, hid_t type, const dataset_options& o = {}) {
  if (H5Lexists(file, path, H5P_DEFAULT) > 0) H5Ldelete(file, path, H5P_DEFAULT);
  const int rank = static_cast<int>(o.shape.size());
  const hid_t space = H5Screate_simple(rank, o.shape.data(), nullptr);
  const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
  if (!o.chunk.empty()) H5Pset_chunk(creation, rank, o.chunk.data());
  if (!o.chunk.empty() || !o.write) o.creation(creation);
  const hid_t dataset = H5Dcreate2(file, path, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
  BOOST_REQUIRE(dataset >= 0);
  if (o.write) {
    const std::vector<char> zeros(static_cast<std::size_t>(H5Sget_simple_extent_npoints(space)) *
                                  H5Tget_size(type));
    BOOST_REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()) >= 0);
  }
  if (!o.dtype.empty()) set_text(file, path, "dtype", o.dtype.c_str());
  set_text(file, path, "axes", "token, head, channel");
  H5Dclose(dataset);
  H5Pclose(creation);
  H5Sclose(space);
  H5Tclose(type);
}

template <class Error>
void check_spoiled(std::initializer_list<std::string_view> words,
                   const std::function<void(hid_t)>& spoil) {
  check_refused<Error>(spoiled_file(spoil).path, words);
}

constexpr const char* q = "/layers/2/q";
constexpr const char* k = "/layers/10/k";
constexpr std::string_view schema_remedy = "write the file as traces/README.md says";
constexpr std::string_view type_remedy = "dtype = float16";

}  // namespace

BOOST_AUTO_TEST_SUITE(not_hdf5)

BOOST_AUTO_TEST_CASE(missing) {
  const scratch_folder folder;
  check_refused<not_hdf5_error>(folder / "a.h5", {"No such file", "check the path"});
}

BOOST_AUTO_TEST_CASE(directory) {
  const scratch_folder folder;
  std::filesystem::create_directory(folder / "a.h5");
  check_refused<not_hdf5_error>(folder / "a.h5", {"is a directory"});
}

BOOST_AUTO_TEST_CASE(empty_and_text) {
  const scratch_folder folder;
  write_bytes(folder / "a.h5", "");
  check_refused<not_hdf5_error>(folder / "a.h5", {"is empty"});
  write_bytes(folder / "a.h5", "q,k,v\n1,2,3\n");
  check_refused<not_hdf5_error>(folder / "a.h5", {"no HDF5 signature", "kvproof trace synth"});
}

BOOST_AUTO_TEST_CASE(device) {
  check_refused<not_hdf5_error>("/dev/null", {"cannot be opened as a file"});
}

BOOST_AUTO_TEST_CASE(signature_and_garbage) {
  const scratch_folder folder;
  write_bytes(folder / "a.h5", "\x89HDF\r\n\x1a\n" + std::string(4000, 'x'));
  check_refused<truncated_error>(folder / "a.h5", {"cannot be read (", "): damaged"});
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(schema)

BOOST_AUTO_TEST_CASE(accepts_other_layouts) {
  const spoiled_file file([](hid_t f) {
    set_text(f, "/", "model_name", "variable length");
    set_integer(f, "/", "schema_version", 1);
    set_dataset(f, k, half(), {.chunk = {5, 2, 4}});                          // no gzip
    set_dataset(f, "/layers/10/v", half(), {.chunk = {2, 1, 3}});             // cut channels
    set_dataset(f, "/layers/2/extra", H5Tcopy(H5T_STD_I8LE), {.dtype = ""});  // ignored
  });
  const attention_trace trace = read_attention_trace(file.path);
  BOOST_TEST(trace.model.name == "variable length");
  BOOST_TEST(trace.layers[1].k == std::vector<half_bits>(40, 0));
  BOOST_TEST(trace.layers[1].v == std::vector<half_bits>(40, 0));
  BOOST_TEST(trace.layers[0].q == small_trace({}).layers[0].q);
}

BOOST_AUTO_TEST_CASE(padded_strings) {
  const spoiled_file file([](hid_t f) {
    const hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, 8);
    H5Tset_strpad(type, H5T_STR_SPACEPAD);
    set_attribute(f, "/", "license", type, "MIT     ");
    H5Tset_strpad(type, H5T_STR_NULLTERM);
    set_attribute(f, "/", "provenance", type, "ab\0cdef");
    H5Tclose(type);
  });
  const attention_trace trace = read_attention_trace(file.path);
  BOOST_TEST(trace.license == "MIT");
  BOOST_TEST(trace.provenance == "ab");
}

BOOST_AUTO_TEST_CASE(missing_root_attribute) {
  for (const char* name : {"schema", "schema_version", "model_name", "num_layers", "query_heads",
                           "kv_heads", "head_dim", "rope_theta", "softmax_scale", "num_tokens",
                           "prompt_length", "provenance", "license"}) {
    check_spoiled<schema_error>(
        {": /: ", std::string("attribute ") + name + " is missing", schema_remedy},
        [name](hid_t f) { H5Adelete(f, name); });
  }
}

BOOST_AUTO_TEST_CASE(wrong_schema) {
  check_spoiled<schema_error>({"schema is \"weights?x\"", "name an attention trace"},
                              [](hid_t f) { set_text(f, "/", "schema", "weights\nx"); });
}

BOOST_AUTO_TEST_CASE(newer_version) {
  check_spoiled<schema_error>({"schema_version is 2", "reads 1", "newer kvproof"},
                              [](hid_t f) { set_integer(f, "/", "schema_version", 2); });
}

BOOST_AUTO_TEST_CASE(wrong_attribute_types) {
  check_spoiled<schema_error>({"head_dim is not an integer"},
                              [](hid_t f) { set_text(f, "/", "head_dim", "4"); });
  check_spoiled<schema_error>({"rope_theta is not float64"},
                              [](hid_t f) { set_integer(f, "/", "rope_theta", 10000); });
  check_spoiled<schema_error>({"license is not a string"},
                              [](hid_t f) { set_integer(f, "/", "license", 3); });
  check_spoiled<schema_error>({"license is not UTF-8"},
                              [](hid_t f) { set_text(f, "/", "license", "\xff"); });
  check_spoiled<schema_error>({"kv_heads is not a single value"}, [](hid_t f) {
    const std::int32_t two[] = {2, 2};
    set_attribute(f, "/", "kv_heads", H5T_STD_I32LE, two, 2);
  });
}

BOOST_AUTO_TEST_CASE(facts_out_of_range) {
  struct bad_fact {
    const char* name;
    std::int64_t value;
  };
  for (const auto& [name, value] :
       {bad_fact{"num_layers", 0}, bad_fact{"query_heads", -1}, bad_fact{"kv_heads", 1 << 20},
        bad_fact{"head_dim", 4097}, bad_fact{"num_tokens", -1}, bad_fact{"num_tokens", 1LL << 62},
        bad_fact{"num_tokens", 1LL << 31}, bad_fact{"prompt_length", -1}}) {
    check_spoiled<schema_error>({std::string(name) + " = " + std::to_string(value) + " is not in"},
                                [&](hid_t f) { set_integer(f, "/", name, value); });
  }
  for (const double value : {0.0, -1.0, HUGE_VAL, std::nan("")}) {
    check_spoiled<schema_error>({"softmax_scale", "is not a positive number"}, [&](hid_t f) {
      set_attribute(f, "/", "softmax_scale", H5T_IEEE_F64LE, &value);
    });
  }
}

BOOST_AUTO_TEST_CASE(facts_that_disagree) {
  check_spoiled<schema_error>({"query_heads = 6 is not a multiple of kv_heads = 4"},
                              [](hid_t f) { set_integer(f, "/", "kv_heads", 4); });
  check_spoiled<schema_error>({"prompt_length = 6 is not in 0 to num_tokens = 5"},
                              [](hid_t f) { set_integer(f, "/", "prompt_length", 6); });
}

BOOST_AUTO_TEST_CASE(attribute_and_shape_disagree) {
  check_spoiled<schema_error>({": /layers/2/q: has shape [5, 6, 4]", "say [5, 8, 4]"},
                              [](hid_t f) { set_integer(f, "/", "query_heads", 8); });
  check_spoiled<schema_error>({": /layers/2/k: has shape [5, 2, 4]", "say [5, 3, 4]"},
                              [](hid_t f) { set_integer(f, "/", "kv_heads", 3); });
  check_spoiled<schema_error>({": /layers/2/q: has shape [5, 6, 4]", "say [5, 6, 8]"},
                              [](hid_t f) { set_integer(f, "/", "head_dim", 8); });
  check_spoiled<schema_error>({": /token_ids: has shape [5]", "say [4]"},
                              [](hid_t f) { set_integer(f, "/", "num_tokens", 4); });
  check_spoiled<schema_error>({": /layers/10/k: has shape [6, 2, 4]", "say [5, 2, 4]",
                               "token, head, channel", schema_remedy},
                              [](hid_t f) {
                                set_dataset(f, k, half(), {.shape = {6, 2, 4}});
                              });
}

BOOST_AUTO_TEST_CASE(wrong_rank) {
  check_spoiled<schema_error>({": /layers/10/k: has rank 2, not 3 (token, head, channel)"},
                              [](hid_t f) {
                                set_dataset(f, k, half(), {.shape = {5, 8}});
                              });
  check_spoiled<schema_error>({": /token_ids: has rank 2, not 1"}, [](hid_t f) {
    set_dataset(f, "/token_ids", H5Tcopy(H5T_STD_I32LE), {.shape = {5, 1}});
  });
}

BOOST_AUTO_TEST_CASE(missing_objects) {
  check_spoiled<schema_error>({": /token_ids: dataset is missing", schema_remedy},
                              [](hid_t f) { H5Ldelete(f, "token_ids", H5P_DEFAULT); });
  check_spoiled<schema_error>({": /layers: group is missing"},
                              [](hid_t f) { H5Ldelete(f, "layers", H5P_DEFAULT); });
  for (const char* path : {"/layers/2/q", "/layers/2/k", "/layers/10/v"}) {
    check_spoiled<schema_error>({std::string(path) + ": dataset is missing"},
                                [path](hid_t f) { H5Ldelete(f, path, H5P_DEFAULT); });
  }
  check_spoiled<schema_error>({": /layers: holds no layer"}, [](hid_t f) {
    H5Ldelete(f, "/layers/2", H5P_DEFAULT);
    H5Ldelete(f, "/layers/10", H5P_DEFAULT);
  });
}

BOOST_AUTO_TEST_CASE(objects_of_another_kind) {
  check_spoiled<schema_error>({": /layers/10/k: is not a dataset"}, [](hid_t f) {
    H5Ldelete(f, k, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(f, k, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  });
  check_spoiled<schema_error>({": /layers/3: is not a group"},
                              [](hid_t f) { set_dataset(f, "/layers/3", half()); });
}

BOOST_AUTO_TEST_CASE(links_that_lead_elsewhere) {
  check_spoiled<schema_error>({": /layers/10/k: is a soft or external link"}, [](hid_t f) {
    H5Ldelete(f, k, H5P_DEFAULT);
    H5Lcreate_soft("/layers/2/k", f, k, H5P_DEFAULT, H5P_DEFAULT);
  });
  check_spoiled<schema_error>({": /layers/10/k: is a soft or external link"}, [](hid_t f) {
    H5Ldelete(f, k, H5P_DEFAULT);
    H5Lcreate_external("/etc/passwd", "/k", f, k, H5P_DEFAULT, H5P_DEFAULT);
  });
  check_spoiled<schema_error>({": /layers/10/k: its data lie in another file"}, [](hid_t f) {
    set_dataset(
        f, k, half(),
        {.creation = [](hid_t p) { H5Pset_external(p, "other.bin", 0, 80); }, .write = false});
  });
}

BOOST_AUTO_TEST_CASE(layer_names_and_numbers) {
  const auto move = [](const char* to) {
    return [to](hid_t f) { H5Lmove(f, "/layers/10", f, to, H5P_DEFAULT, H5P_DEFAULT); };
  };
  check_spoiled<schema_error>({": /layers: \"007\" is not a layer index", "leading zeros"},
                              move("/layers/007"));
  check_spoiled<schema_error>({": /layers: \"last\" is not a layer index"}, move("/layers/last"));
  check_spoiled<schema_error>({": /layers/12: is not below num_layers = 12"}, move("/layers/12"));
  check_spoiled<schema_error>({": /layers/-3: is not below"}, move("/layers/-3"));
  check_spoiled<schema_error>({": /layers/7: attribute layer is 10, not 7"}, move("/layers/7"));
  // The same layer twice.
  check_spoiled<schema_error>({": /layers/7: attribute layer is 2, not 7"}, [](hid_t f) {
    H5Lcreate_hard(f, "/layers/2", f, "/layers/7", H5P_DEFAULT, H5P_DEFAULT);
  });
  check_spoiled<schema_error>({": /layers/2: attribute layer is missing"}, [](hid_t f) {
    H5Adelete_by_name(f, "/layers/2", "layer", H5P_DEFAULT);
  });
  check_spoiled<schema_error>({": /layers: holds 2 layers, num_layers is 1"},
                              [](hid_t f) { set_integer(f, "/", "num_layers", 1); });
}

BOOST_AUTO_TEST_CASE(axes) {
  check_spoiled<schema_error>({": /layers/2/q: axes is \"head, token, channel\""},
                              [](hid_t f) { set_text(f, q, "axes", "head, token, channel"); });
  check_spoiled<schema_error>({": /layers/2/q: attribute axes is missing"},
                              [](hid_t f) { H5Adelete_by_name(f, q, "axes", H5P_DEFAULT); });
}

BOOST_AUTO_TEST_CASE(token_ids) {
  check_spoiled<schema_error>({": /token_ids: is not int32"}, [](hid_t f) {
    set_dataset(f, "/token_ids", H5Tcopy(H5T_STD_I64LE), {.shape = {5}});
  });
  check_spoiled<schema_error>({": /token_ids: the id of token 3 is -7"}, [](hid_t f) {
    const std::int32_t ids[] = {1, 2, 3, -7, -8};
    const hid_t dataset = H5Dopen2(f, "/token_ids", H5P_DEFAULT);
    H5Dwrite(dataset, H5T_STD_I32LE, H5S_ALL, H5S_ALL, H5P_DEFAULT, ids);
    H5Dclose(dataset);
  });
}

BOOST_AUTO_TEST_CASE(foreign_filters) {
  check_spoiled<schema_error>({": /layers/10/k: HDF5 filter 5 is not shuffle"}, [](hid_t f) {
    set_dataset(f, k, half(), {.chunk = {5, 2, 4}, .creation = [](hid_t p) { H5Pset_nbit(p); }});
  });
}

BOOST_AUTO_TEST_CASE(no_checksum) {
  check_spoiled<schema_error>({": /layers/10/k: is stored without fletcher32", schema_remedy},
                              [](hid_t f) { set_dataset(f, k, half()); });
  check_spoiled<schema_error>({": /layers/10/k: is stored without fletcher32"}, [](hid_t f) {
    set_dataset(f, k, half(),
                {.chunk = {5, 2, 4}, .creation = [](hid_t p) { H5Pset_deflate(p, 6); }});
  });
}

BOOST_AUTO_TEST_CASE(never_written) {
  check_spoiled<schema_error>({": /layers/10/k: 80 bytes of data cannot come from 0 stored bytes"},
                              [](hid_t f) {
                                set_dataset(f, k, half(), {.chunk = {2, 2, 4}, .write = false});
                              });
  check_spoiled<truncated_error>(
      {": /layers/10/k: its 3 chunks are not all stored", "2 in the index", "not finished"},
      [](hid_t f) {
        const auto compress = [](hid_t p) {
          H5Pset_deflate(p, 6);
          H5Pset_fletcher32(p);
        };
        set_dataset(f, k, half(), {.chunk = {2, 2, 4}, .creation = compress, .write = false});
        const hid_t dataset = H5Dopen2(f, k, H5P_DEFAULT);
        const hsize_t shape[] = {4, 2, 4};
        const hsize_t start[] = {0, 0, 0};
        const hid_t memory = H5Screate_simple(3, shape, nullptr);
        const hid_t space = H5Dget_space(dataset);
        H5Sselect_hyperslab(space, H5S_SELECT_SET, start, nullptr, shape, nullptr);
        const hid_t type = half();
        const std::vector<half_bits> zeros(32);
        BOOST_REQUIRE(H5Dwrite(dataset, type, memory, space, H5P_DEFAULT, zeros.data()) >= 0);
        H5Tclose(type);
        H5Sclose(space);
        H5Sclose(memory);
        H5Dclose(dataset);
      });
}

// 2^30 tokens of nothing: refused before memory is asked for.
BOOST_AUTO_TEST_CASE(absurd_size) {
  constexpr std::int64_t tokens = 1 << 30;
  const auto compress = [](hid_t p) {
    H5Pset_deflate(p, 6);
    H5Pset_fletcher32(p);
  };
  check_spoiled<schema_error>(
      {": /token_ids: 4294967296 bytes of data cannot come from"}, [&](hid_t f) {
        set_integer(f, "/", "num_tokens", tokens);
        set_dataset(f, "/token_ids", H5Tcopy(H5T_STD_I32LE),
                    {.shape = {tokens}, .chunk = {1024}, .creation = compress, .write = false});
      });
  check_spoiled<schema_error>(
      {": /layers/10/k: its chunks [4194304, 2, 8] are larger than its shape [5, 2, 4]"},
      [&](hid_t f) {
        set_dataset(f, k, half(), {.shape = {5, 2, 4}, .chunk = {5, 2, 4}});
        H5Ldelete(f, k, H5P_DEFAULT);
        const hsize_t extent[] = {5, 2, 4};
        const hsize_t unlimited[] = {H5S_UNLIMITED, H5S_UNLIMITED, H5S_UNLIMITED};
        const hsize_t chunk[] = {1 << 22, 2, 8};
        const hid_t space = H5Screate_simple(3, extent, unlimited);
        const hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
        H5Pset_chunk(creation, 3, chunk);
        H5Pset_deflate(creation, 1);
        H5Pset_fletcher32(creation);
        const hid_t type = half();
        const hid_t dataset = H5Dcreate2(f, k, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
        const std::vector<half_bits> zeros(40);
        BOOST_REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, zeros.data()) >= 0);
        H5Dclose(dataset);
        H5Tclose(type);
        H5Pclose(creation);
        H5Sclose(space);
        set_text(f, k, "dtype", "float16");
        set_text(f, k, "axes", "token, head, channel");
      });
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(element_type)

BOOST_AUTO_TEST_CASE(integers_and_opaque_bytes) {
  for (const char* dtype : {"", "float16", "bfloat16"}) {
    check_spoiled<element_type_error>(
        {": /layers/10/k: holds 16-bit unsigned integers, not float16", "not guessed", type_remedy},
        [&](hid_t f) { set_dataset(f, k, H5Tcopy(H5T_STD_U16LE), {.dtype = dtype}); });
    check_spoiled<element_type_error>({"holds 16-bit signed integers"}, [&](hid_t f) {
      set_dataset(f, k, H5Tcopy(H5T_STD_I16LE), {.dtype = dtype});
    });
    check_spoiled<element_type_error>({"holds opaque elements of 16 bits"}, [&](hid_t f) {
      set_dataset(f, k, H5Tcreate(H5T_OPAQUE, 2), {.dtype = dtype});
    });
  }
}

BOOST_AUTO_TEST_CASE(bfloat16) {
  for (const char* dtype : {"", "float16", "bfloat16"}) {
    check_spoiled<element_type_error>(
        {": /layers/10/k: holds bfloat16, not float16"}, [&](hid_t f) {
          set_dataset(f, k, float_type({15, 7, 8, 7, 127, H5T_ORDER_LE}), {.dtype = dtype});
        });
  }
}

BOOST_AUTO_TEST_CASE(other_floats) {
  check_spoiled<element_type_error>(
      {"holds 32-bit little-endian floats with 8 exponent bits", type_remedy},
      [](hid_t f) { set_dataset(f, k, H5Tcopy(H5T_IEEE_F32LE)); });
  check_spoiled<element_type_error>(
      {"holds 16-bit big-endian floats with 5 exponent bits", "'<f2'"}, [](hid_t f) {
        set_dataset(f, k, float_type({15, 10, 5, 10, 15, H5T_ORDER_BE}));
      });
  check_spoiled<element_type_error>({"not float16"}, [](hid_t f) {
    set_dataset(f, k, float_type({15, 10, 5, 10, 16, H5T_ORDER_LE}));  // another bias
  });
}

BOOST_AUTO_TEST_CASE(declaration) {
  check_spoiled<element_type_error>({": /layers/2/q: no attribute dtype", "not guessed"},
                                    [](hid_t f) { H5Adelete_by_name(f, q, "dtype", H5P_DEFAULT); });
  check_spoiled<element_type_error>({": /layers/2/q: dtype is \"bfloat16\"", type_remedy},
                                    [](hid_t f) { set_text(f, q, "dtype", "bfloat16"); });
}

BOOST_AUTO_TEST_SUITE_END()

BOOST_AUTO_TEST_SUITE(non_finite)

BOOST_AUTO_TEST_CASE(names_the_element) {
  struct bad_value {
    half_bits bits;
    const char* name;
  };
  for (const auto& [bits, name] :
       {bad_value{0x7c00, "0x7c00 (infinity)"}, bad_value{0xfc00, "0xfc00 (infinity)"},
        bad_value{0x7e00, "0x7e00 (NaN)"}, bad_value{0xfc01, "0xfc01 (NaN)"}}) {
    const auto spoil = [bad = bits](const char* path, std::size_t at, std::size_t size) {
      return [=](hid_t f) {
        const hid_t dataset = H5Dopen2(f, path, H5P_DEFAULT);
        const hid_t type = H5Dget_type(dataset);
        std::vector<half_bits> values(size, 0x7bff);
        values[at] = bad;
        values.back() = 0x7e00;  // only the first is named
        BOOST_REQUIRE(H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0);
        H5Tclose(type);
        H5Dclose(dataset);
      };
    };
    check_spoiled<non_finite_error>(
        {": /layers/2/q: layer 2, token 3, query head 5, channel 1 is ", name, "record it again"},
        spoil(q, (3 * 6 + 5) * 4 + 1, 120));
    check_spoiled<non_finite_error>(
        {": /layers/10/k: layer 10, token 4, kv head 0, channel 2 is ", name},
        spoil(k, (4 * 2 + 0) * 4 + 2, 40));
  }
}

BOOST_AUTO_TEST_SUITE_END()

}  // namespace kvproof::traces::test
