// Reads schema v1 (traces/README.md). Nothing is allocated before the file has shown that it can
// hold it, nothing is returned before all of it was checked. The type in memory is the type in the
// file in every H5Dread.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <system_error>
#include <vector>

#include "traces/hdf5_file.hpp"
#include "traces/trace_rules.hpp"

namespace kvproof::traces {

namespace {

static_assert(std::endian::native == std::endian::little, "file types are little-endian");

constexpr std::string_view copy_again = "copy or record the file again";
constexpr std::string_view follow_schema = "write the file as traces/README.md says";
constexpr std::string_view declare_half =
    "store IEEE halves as HDF5 float16 little-endian ('<f2') with the attribute dtype = float16";
constexpr std::size_t max_string_bytes = 1 << 20;
constexpr std::uint64_t max_deflate_ratio = 1032;  // what one byte of gzip can expand to
constexpr std::array<unsigned char, 8> signature = {0x89, 'H', 'D', 'F', '\r', '\n', 0x1a, '\n'};

// Text of a file inside a one-line message.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t max_shown = 60;
  std::string out = "\"";
  for (const char c : text.substr(0, max_shown)) {
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  }
  return out + (text.size() > max_shown ? "...\"" : "\"");
}

class trace_reader {
 public:
  explicit trace_reader(const std::filesystem::path& path) : path_(path) {}

  attention_trace read() {
    check_is_hdf5();
    const hdf5_id file = open_file();
    attention_trace trace = read_facts(file.get());
    trace.token_ids = read_token_ids(file.get(), trace.num_tokens);
    read_layers(file.get(), trace);
    return trace;
  }

 private:
  template <class Error>
  [[noreturn]] void fail(std::string_view where, std::string_view what,
                         std::string_view remedy) const {
    throw Error(fmt::format("{}: {}{}{}; {}", path_.string(), where, where.empty() ? "" : ": ",
                            what, remedy));
  }

  [[noreturn]] void fail_damaged(std::string_view where) const {
    const std::string reason = hdf5_reason();
    fail<truncated_error>(
        where, fmt::format("cannot be read ({}): damaged, or newer than HDF5 1.10", reason),
        copy_again);
  }

  hdf5_id take(hid_t id, hdf5_id::closer close, std::string_view where) const {
    if (id < 0) fail_damaged(where);
    return {id, close};
  }

  // --- the file ---

  void check_is_hdf5() {
    std::error_code failure;
    const auto status = std::filesystem::status(path_, failure);
    if (!std::filesystem::exists(status)) {
      fail<not_hdf5_error>("", failure.message(), "check the path");
    }
    if (std::filesystem::is_directory(status)) {
      fail<not_hdf5_error>("", "is a directory, not an HDF5 file", "name a trace file in it");
    }
    std::ifstream in(path_, std::ios::binary);
    if (!in || !std::filesystem::is_regular_file(status)) {
      fail<not_hdf5_error>("", "cannot be opened as a file", "check the path and its permissions");
    }
    file_bytes_ = std::filesystem::file_size(path_);
    std::array<unsigned char, 64> head = {};
    in.read(reinterpret_cast<char*>(head.data()), head.size());
    const auto size = static_cast<std::size_t>(in.gcount());
    if (size == 0) fail<not_hdf5_error>("", "is empty, not an HDF5 file", copy_again);
    if (std::memcmp(head.data(), signature.data(), std::min(size, signature.size())) != 0) {
      fail<not_hdf5_error>("", "is not an HDF5 file (no HDF5 signature at byte 0)",
                           "name an attention trace; `kvproof trace synth` makes one");
    }
    check_length(head);
  }

  // The superblock holds the length of the file; HDF5 would only say "truncated file".
  void check_length(const std::array<unsigned char, 64>& head) const {
    const int version = head[8];
    if (version > 3) return;  // H5Fopen says what is wrong
    const std::size_t base_at = version < 2 ? (version == 0 ? 24 : 28) : 12;
    const std::size_t end_at = base_at + 16;
    const int offset_bytes = version < 2 ? head[13] : head[9];
    if (file_bytes_ >= end_at + 8 && offset_bytes != 8) return;
    std::uint64_t end = end_at + 8;
    if (file_bytes_ >= end) std::memcpy(&end, head.data() + end_at, sizeof end);
    if (file_bytes_ < end) {
      fail<truncated_error>(
          "",
          fmt::format("truncated: it has {} bytes and should have at least {}", file_bytes_, end),
          copy_again);
    }
  }

  [[nodiscard]] hdf5_id open_file() const {
    const hdf5_id access = take(H5Pcreate(H5P_FILE_ACCESS), H5Pclose, "");
    H5Pset_file_locking(access.get(), false, true);  // read-only media have no locks
    return take(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose, "");
  }

  // --- attributes ---

  [[nodiscard]] hdf5_id open_attribute(hid_t object, const std::string& where,
                                       const char* name) const {
    const htri_t exists = H5Aexists(object, name);
    if (exists < 0) fail_damaged(where);
    if (exists == 0) {
      fail<schema_error>(where, fmt::format("attribute {} is missing", name), follow_schema);
    }
    hdf5_id attribute = take(H5Aopen(object, name, H5P_DEFAULT), H5Aclose, where);
    const hdf5_id space = take(H5Aget_space(attribute.get()), H5Sclose, where);
    if (H5Sget_simple_extent_npoints(space.get()) != 1) {
      fail<schema_error>(where, fmt::format("attribute {} is not a single value", name),
                         follow_schema);
    }
    return attribute;
  }

  [[nodiscard]] std::int64_t integer(hid_t object, const std::string& where, const char* name,
                                     std::int64_t smallest, std::int64_t largest) const {
    const hdf5_id attribute = open_attribute(object, where, name);
    const hdf5_id type = take(H5Aget_type(attribute.get()), H5Tclose, where);
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Tget_size(type.get()) > 8) {
      fail<schema_error>(where, fmt::format("attribute {} is not an integer", name), follow_schema);
    }
    std::int64_t value = 0;
    if (H5Aread(attribute.get(), H5T_NATIVE_INT64, &value) < 0) fail_damaged(where);
    if (value < smallest || value > largest) {
      fail<schema_error>(where,
                         fmt::format("{} = {} is not in {} to {}", name, value, smallest, largest),
                         follow_schema);
    }
    return value;
  }

  [[nodiscard]] double real(hid_t object, const std::string& where, const char* name) const {
    const hdf5_id attribute = open_attribute(object, where, name);
    const hdf5_id type = take(H5Aget_type(attribute.get()), H5Tclose, where);
    if (H5Tequal(type.get(), H5T_IEEE_F64LE) <= 0) {
      fail<schema_error>(where, fmt::format("attribute {} is not float64 little-endian", name),
                         follow_schema);
    }
    double value = 0;
    if (H5Aread(attribute.get(), type.get(), &value) < 0) fail_damaged(where);
    return value;
  }

  [[nodiscard]] std::string text(hid_t object, const std::string& where, const char* name) const {
    const hdf5_id attribute = open_attribute(object, where, name);
    const hdf5_id type = take(H5Aget_type(attribute.get()), H5Tclose, where);
    if (H5Tget_class(type.get()) != H5T_STRING) {
      fail<schema_error>(where, fmt::format("attribute {} is not a string", name), follow_schema);
    }
    std::string value = H5Tis_variable_str(type.get()) > 0
                            ? variable_string(attribute.get(), type.get(), where)
                            : fixed_string(attribute.get(), type.get(), where, name);
    if (!is_utf8(value)) {
      fail<schema_error>(where, fmt::format("attribute {} is not UTF-8 text", name), follow_schema);
    }
    return value;
  }

  [[nodiscard]] std::string variable_string(hid_t attribute, hid_t type,
                                            const std::string& where) const {
    char* data = nullptr;
    if (H5Aread(attribute, type, &data) < 0) fail_damaged(where);
    std::string value = data == nullptr ? "" : data;
    H5free_memory(data);
    return value;
  }

  [[nodiscard]] std::string fixed_string(hid_t attribute, hid_t type, const std::string& where,
                                         const char* name) const {
    const std::size_t size = H5Tget_size(type);
    if (size > max_string_bytes) {
      fail<schema_error>(where, fmt::format("attribute {} is longer than 1 MiB", name),
                         follow_schema);
    }
    std::string value(size, '\0');
    if (H5Aread(attribute, type, value.data()) < 0) fail_damaged(where);
    value.resize(std::min(value.find('\0'), size));
    if (H5Tget_strpad(type) == H5T_STR_SPACEPAD) value.resize(value.find_last_not_of(' ') + 1);
    return value;
  }

  [[nodiscard]] attention_trace read_facts(hid_t file) const {
    const std::string root = "/";
    const std::string schema = text(file, root, "schema");
    if (schema != schema_name) {
      fail<schema_error>(root,
                         fmt::format("schema is {}, not \"{}\"", in_quotes(schema), schema_name),
                         "name an attention trace");
    }
    constexpr std::int64_t any = std::numeric_limits<std::int32_t>::max();
    const std::int64_t version = integer(file, root, "schema_version", 0, any);
    if (version != schema_version) {
      fail<schema_error>(
          root, fmt::format("schema_version is {}, this kvproof reads {}", version, schema_version),
          version > schema_version ? "use a newer kvproof" : "record the file again");
    }
    attention_trace trace;
    model_facts& model = trace.model;
    model.name = text(file, root, "model_name");
    model.num_layers = static_cast<int>(integer(file, root, "num_layers", 1, max_extent));
    model.query_heads = static_cast<int>(integer(file, root, "query_heads", 1, max_extent));
    model.kv_heads = static_cast<int>(integer(file, root, "kv_heads", 1, max_extent));
    model.head_dim = static_cast<int>(integer(file, root, "head_dim", 1, max_extent));
    model.rope_theta = real(file, root, "rope_theta");
    model.softmax_scale = real(file, root, "softmax_scale");
    trace.num_tokens = integer(file, root, "num_tokens", 0, max_tokens);
    trace.prompt_length = integer(file, root, "prompt_length", 0, max_tokens);
    trace.provenance = text(file, root, "provenance");
    trace.license = text(file, root, "license");
    if (const auto rule = broken_rule(model, trace.num_tokens, trace.prompt_length)) {
      fail<schema_error>(root, *rule, follow_schema);
    }
    return trace;
  }

  // --- objects ---

  // Opens what a hard link of this file points to: others could lead out of the file.
  [[nodiscard]] hdf5_id open_object(hid_t parent, const char* name, const std::string& where,
                                    H5I_type_t kind) const {
    const std::string_view noun = kind == H5I_DATASET ? "dataset" : "group";
    const htri_t exists = H5Lexists(parent, name, H5P_DEFAULT);
    if (exists < 0) fail_damaged(where);
    if (exists == 0) {
      fail<schema_error>(where, fmt::format("{} is missing", noun), follow_schema);
    }
    H5L_info_t link = {};
    if (H5Lget_info(parent, name, &link, H5P_DEFAULT) < 0) fail_damaged(where);
    if (link.type != H5L_TYPE_HARD) {
      fail<schema_error>(where, fmt::format("is a soft or external link, not a {}", noun),
                         follow_schema);
    }
    hdf5_id object = take(H5Oopen(parent, name, H5P_DEFAULT), H5Oclose, where);
    if (H5Iget_type(object.get()) != kind) {
      fail<schema_error>(where, fmt::format("is not a {}", noun), follow_schema);
    }
    return object;
  }

  void check_shape(hid_t dataset, const std::string& where, const std::vector<std::int64_t>& shape,
                   std::string_view axes) const {
    const hdf5_id space = take(H5Dget_space(dataset), H5Sclose, where);
    const int rank = H5Sget_simple_extent_type(space.get()) == H5S_SIMPLE
                         ? H5Sget_simple_extent_ndims(space.get())
                         : 0;
    if (rank != static_cast<int>(shape.size())) {
      fail<schema_error>(where, fmt::format("has rank {}, not {} ({})", rank, shape.size(), axes),
                         follow_schema);
    }
    std::vector<hsize_t> extents(shape.size());
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    if (!std::ranges::equal(extents, shape, {}, {},
                            [](std::int64_t n) { return static_cast<hsize_t>(n); })) {
      fail<schema_error>(where,
                         fmt::format("has shape [{}], the attributes of the file say [{}] ({})",
                                     fmt::join(extents, ", "), fmt::join(shape, ", "), axes),
                         follow_schema);
    }
  }

  // Every element is stored, in a form that cannot expand beyond what the file can hold.
  void check_storage(hid_t dataset, const std::string& where, std::int64_t size_bytes,
                     unsigned element_bytes) const {
    const hdf5_id creation = take(H5Dget_create_plist(dataset), H5Pclose, where);
    if (H5Pget_layout(creation.get()) == H5D_VIRTUAL ||
        H5Pget_external_count(creation.get()) != 0) {
      fail<schema_error>(where, "its data lie in another file", follow_schema);
    }
    std::uint64_t ratio = 1;
    unsigned checksum_mask = 0;  // bit i: filter i was skipped for a chunk
    for (int i = 0; i < H5Pget_nfilters(creation.get()); ++i) {
      unsigned flags = 0;
      unsigned config = 0;
      unsigned first_value = 0;
      std::size_t num_values = 1;
      const H5Z_filter_t filter = H5Pget_filter2(creation.get(), static_cast<unsigned>(i), &flags,
                                                 &num_values, &first_value, 0, nullptr, &config);
      if (filter == H5Z_FILTER_DEFLATE) {
        ratio = max_deflate_ratio;
      } else if (filter == H5Z_FILTER_FLETCHER32) {
        checksum_mask |= 1u << i;
      } else if (filter == H5Z_FILTER_SHUFFLE) {
        if (first_value != element_bytes) {
          fail<schema_error>(where, fmt::format("shuffle is for elements of {} bytes", first_value),
                             follow_schema);
        }
      } else {
        fail<schema_error>(where,
                           fmt::format("HDF5 filter {} is not shuffle, gzip or fletcher32", filter),
                           follow_schema);
      }
    }
    if (size_bytes == 0) return;
    if (checksum_mask == 0) {
      fail<schema_error>(where, "is stored without fletcher32, damage would go unseen",
                         follow_schema);
    }
    const std::uint64_t stored = H5Dget_storage_size(dataset);
    const auto size = static_cast<std::uint64_t>(size_bytes);
    if (stored > file_bytes_ || size / ratio > stored) {
      fail<schema_error>(where,
                         fmt::format("{} bytes of data cannot come from {} stored bytes in a file "
                                     "of {} bytes",
                                     size, stored, file_bytes_),
                         "the file is incomplete or damaged, record it again");
    }
    check_chunks(dataset, creation.get(), where, checksum_mask);
  }

  // Asks for every chunk by its place: where the index has none, HDF5 would read zeros. Whatever
  // has filters is chunked.
  void check_chunks(hid_t dataset, hid_t creation, const std::string& where,
                    unsigned checksum_mask) const {
    const hdf5_id space = take(H5Dget_space(dataset), H5Sclose, where);
    const int rank = H5Sget_simple_extent_ndims(space.get());
    std::vector<hsize_t> extents(static_cast<std::size_t>(rank));
    std::vector<hsize_t> chunk(extents.size());
    H5Sget_simple_extent_dims(space.get(), extents.data(), nullptr);
    if (H5Pget_chunk(creation, rank, chunk.data()) != rank) fail_damaged(where);
    hsize_t num_chunks = 1;
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      if (chunk[axis] > extents[axis]) {
        fail<schema_error>(where,
                           fmt::format("its chunks [{}] are larger than its shape [{}]",
                                       fmt::join(chunk, ", "), fmt::join(extents, ", ")),
                           follow_schema);
      }
      num_chunks *= (extents[axis] + chunk[axis] - 1) / chunk[axis];
    }
    hsize_t num_indexed = 0;
    if (H5Dget_num_chunks(dataset, space.get(), &num_indexed) < 0) fail_damaged(where);
    hsize_t num_stored = 0;
    std::vector<hsize_t> place(extents.size());
    std::vector<unsigned char> raw;
    for (hsize_t index = 0; index < num_chunks && num_indexed == num_chunks; ++index) {
      hsize_t rest = index;
      for (std::size_t axis = extents.size(); axis-- > 0;) {
        const hsize_t along = (extents[axis] + chunk[axis] - 1) / chunk[axis];
        place[axis] = rest % along * chunk[axis];
        rest /= along;
      }
      hsize_t stored_bytes = 0;
      std::uint32_t skipped_filters = 0;
      if (H5Dget_chunk_storage_size(dataset, place.data(), &stored_bytes) < 0 ||
          stored_bytes == 0 || stored_bytes > file_bytes_) {
        continue;
      }
      raw.resize(stored_bytes);
      if (H5Dread_chunk(dataset, H5P_DEFAULT, place.data(), &skipped_filters, raw.data()) < 0) {
        fail_damaged(where);
      }
      num_stored += (skipped_filters & checksum_mask) == 0 ? 1 : 0;
    }
    if (num_stored != num_chunks) {
      fail<truncated_error>(where,
                            fmt::format("its {} chunks are not all stored, each in its place with "
                                        "a checksum ({} in the index, {} found)",
                                        num_chunks, num_indexed, num_stored),
                            "writing it was not finished, or it is damaged; record it again");
    }
  }

  template <class Value>
  std::vector<Value> read_values(hid_t dataset, const std::string& where,
                                 std::int64_t count) const {
    check_storage(dataset, where, count * static_cast<std::int64_t>(sizeof(Value)), sizeof(Value));
    std::vector<Value> values(static_cast<std::size_t>(count));
    const hdf5_id type = take(H5Dget_type(dataset), H5Tclose, where);
    if (count != 0 &&
        H5Dread(dataset, type.get(), H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) < 0) {
      fail_damaged(where);
    }
    return values;
  }

  [[nodiscard]] std::vector<std::int32_t> read_token_ids(hid_t file,
                                                         std::int64_t num_tokens) const {
    const std::string where = "/token_ids";
    const hdf5_id dataset = open_object(file, "token_ids", where, H5I_DATASET);
    const hdf5_id type = take(H5Dget_type(dataset.get()), H5Tclose, where);
    if (H5Tequal(type.get(), H5T_STD_I32LE) <= 0) {
      fail<schema_error>(where, "is not int32 little-endian", follow_schema);
    }
    check_shape(dataset.get(), where, {num_tokens}, "token");
    auto ids = read_values<std::int32_t>(dataset.get(), where, num_tokens);
    const auto negative = std::ranges::find_if(ids, [](std::int32_t id) { return id < 0; });
    if (negative != ids.end()) {
      fail<schema_error>(where,
                         fmt::format("the id of token {} is {}", negative - ids.begin(), *negative),
                         follow_schema);
    }
    return ids;
  }

  // --- layers ---

  void read_layers(hid_t file, attention_trace& trace) const {
    const std::string where = "/layers";
    const hdf5_id layers = open_object(file, "layers", where, H5I_GROUP);
    for (const int layer : layer_indices(layers.get(), where, trace.model.num_layers)) {
      trace.layers.push_back(read_layer(layers.get(), layer, trace));
    }
  }

  [[nodiscard]] std::vector<int> layer_indices(hid_t layers, const std::string& where,
                                               int num_layers) const {
    H5G_info_t info = {};
    if (H5Gget_info(layers, &info) < 0) fail_damaged(where);
    if (info.nlinks == 0) fail<schema_error>(where, "holds no layer", follow_schema);
    if (info.nlinks > static_cast<hsize_t>(num_layers)) {
      fail<schema_error>(where,
                         fmt::format("holds {} layers, num_layers is {}", info.nlinks, num_layers),
                         follow_schema);
    }
    std::vector<int> indices;
    for (hsize_t i = 0; i < info.nlinks; ++i) {
      std::array<char, 64> name = {};
      if (H5Lget_name_by_idx(layers, ".", H5_INDEX_NAME, H5_ITER_INC, i, name.data(), name.size(),
                             H5P_DEFAULT) < 0) {
        fail_damaged(where);
      }
      indices.push_back(layer_index(where, name.data(), num_layers));
    }
    std::ranges::sort(indices);
    return indices;
  }

  [[nodiscard]] int layer_index(const std::string& where, std::string_view name,
                                int num_layers) const {
    int layer = -1;
    std::from_chars(name.data(), name.data() + name.size(), layer);
    if (std::to_string(layer) != name) {
      fail<schema_error>(
          where,
          fmt::format("{} is not a layer index in decimal without leading zeros", in_quotes(name)),
          follow_schema);
    }
    if (layer < 0 || layer >= num_layers) {
      fail<schema_error>(fmt::format("{}/{}", where, layer),
                         fmt::format("is not below num_layers = {}", num_layers), follow_schema);
    }
    return layer;
  }

  [[nodiscard]] layer_trace read_layer(hid_t layers, int layer,
                                       const attention_trace& trace) const {
    const std::string where = fmt::format("/layers/{}", layer);
    const hdf5_id group = open_object(layers, std::to_string(layer).c_str(), where, H5I_GROUP);
    const std::int64_t declared = integer(group.get(), where, "layer", 0, max_extent);
    if (declared != layer) {
      fail<schema_error>(where, fmt::format("attribute layer is {}, not {}", declared, layer),
                         follow_schema);
    }
    const int kv_heads = trace.model.kv_heads;
    return {.layer = layer,
            .q = read_tensor(group.get(), layer, "q", trace, trace.model.query_heads),
            .k = read_tensor(group.get(), layer, "k", trace, kv_heads),
            .v = read_tensor(group.get(), layer, "v", trace, kv_heads)};
  }

  [[nodiscard]] std::vector<half_bits> read_tensor(hid_t group, int layer, const char* tensor,
                                                   const attention_trace& trace, int heads) const {
    const int head_dim = trace.model.head_dim;
    const std::string where = fmt::format("/layers/{}/{}", layer, tensor);
    const hdf5_id dataset = open_object(group, tensor, where, H5I_DATASET);
    check_is_half(dataset.get(), where);
    check_shape(dataset.get(), where, {trace.num_tokens, heads, head_dim}, axes_name);
    if (const std::string axes = text(dataset.get(), where, "axes"); axes != axes_name) {
      fail<schema_error>(where, fmt::format("axes is {}, not \"{}\"", in_quotes(axes), axes_name),
                         follow_schema);
    }
    auto values = read_values<half_bits>(dataset.get(), where,
                                         num_elements(trace.num_tokens, heads, head_dim));
    if (const auto at = first_non_finite(values)) {
      fail<non_finite_error>(where,
                             describe_element(layer, tensor, *at, heads, head_dim,
                                              values[static_cast<std::size_t>(*at)]),
                             "a trace holds finite values only, record it again without overflow");
    }
    return values;
  }

  void check_is_half(hid_t dataset, const std::string& where) const {
    const hdf5_id type = take(H5Dget_type(dataset), H5Tclose, where);
    if (H5Tequal(type.get(), half_type().get()) <= 0) {
      fail<element_type_error>(
          where, fmt::format("holds {}, not float16; not guessed", type_name(type.get())),
          declare_half);
    }
    if (H5Aexists(dataset, "dtype") == 0) {
      fail<element_type_error>(where, "no attribute dtype declares its 16-bit type; not guessed",
                               declare_half);
    }
    if (const std::string dtype = text(dataset, where, "dtype"); dtype != dtype_name) {
      fail<element_type_error>(
          where, fmt::format("dtype is {}, its HDF5 type is float16", in_quotes(dtype)),
          declare_half);
    }
  }

  // "bfloat16", "16-bit unsigned integers", ...
  [[nodiscard]] static std::string type_name(hid_t type) {
    const std::size_t bits = 8 * H5Tget_size(type);
    switch (H5Tget_class(type)) {
      case H5T_INTEGER:
        return fmt::format("{}-bit {} integers", bits,
                           H5Tget_sign(type) == H5T_SGN_NONE ? "unsigned" : "signed");
      case H5T_FLOAT: {
        std::size_t sign = 0, exponent = 0, exponent_bits = 0, fraction = 0, fraction_bits = 0;
        H5Tget_fields(type, &sign, &exponent, &exponent_bits, &fraction, &fraction_bits);
        if (bits == 16 && exponent_bits == 8) return "bfloat16";
        return fmt::format("{}-bit {}-endian floats with {} exponent bits", bits,
                           H5Tget_order(type) == H5T_ORDER_BE ? "big" : "little", exponent_bits);
      }
      case H5T_OPAQUE:
        return fmt::format("opaque elements of {} bits", bits);
      default:
        return fmt::format("elements of {} bits that are no floats", bits);
    }
  }

  std::filesystem::path path_;
  std::uint64_t file_bytes_ = 0;
};

}  // namespace

attention_trace read_attention_trace(const std::filesystem::path& file) {
  const quiet_hdf5 quiet;
  return trace_reader(file).read();
}

}  // namespace kvproof::traces
