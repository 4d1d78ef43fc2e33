// Writes schema v1 (traces/README.md) with the metadata of HDF5 1.10, which are under checksums,
// and strings of fixed length, which lie in them. Everything that would make two files of the same
// trace differ (object times) is off.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "traces/hdf5_file.hpp"
#include "traces/trace_rules.hpp"

namespace kvproof::traces {

namespace {

static_assert(std::endian::native == std::endian::little, "file types are little-endian");

constexpr std::size_t max_string_bytes = 32 * 1024;  // an attribute lies in the object header

[[noreturn]] void refuse(const std::string& what) {
  throw spec::contract_error("write_attention_trace: " + what + "; nothing was written");
}

void check_string(const char* name, const std::string& text) {
  if (!is_utf8(text)) refuse(fmt::format("{} is not UTF-8 text", name));
  if (text.size() > max_string_bytes) {
    refuse(fmt::format("{} has {} bytes, the limit is {}", name, text.size(), max_string_bytes));
  }
}

void check_tensor(const attention_trace& trace, const layer_trace& layer, const char* tensor,
                  const std::vector<half_bits>& values, int heads) {
  const int head_dim = trace.model.head_dim;
  const std::int64_t expected = num_elements(trace.num_tokens, heads, head_dim);
  if (static_cast<std::int64_t>(values.size()) != expected) {
    refuse(fmt::format("layer {}: {} has {} elements, {} tokens of {} heads of {} channels are {}",
                       layer.layer, tensor, values.size(), trace.num_tokens, heads, head_dim,
                       expected));
  }
  if (const auto at = first_non_finite(values)) {
    refuse(fmt::format("{}: {}", tensor,
                       describe_element(layer.layer, tensor, *at, heads, head_dim,
                                        values[static_cast<std::size_t>(*at)])));
  }
}

void check_trace(const attention_trace& trace) {
  if (const auto rule = broken_rule(trace.model, trace.num_tokens, trace.prompt_length)) {
    refuse(*rule);
  }
  check_string("model.name", trace.model.name);
  check_string("provenance", trace.provenance);
  check_string("license", trace.license);
  if (static_cast<std::int64_t>(trace.token_ids.size()) != trace.num_tokens) {
    refuse(fmt::format("{} token_ids for {} tokens", trace.token_ids.size(), trace.num_tokens));
  }
  if (std::ranges::any_of(trace.token_ids, [](std::int32_t id) { return id < 0; })) {
    refuse("a token id is negative");
  }
  if (trace.layers.empty()) refuse("no layers");
  int previous = -1;
  for (const layer_trace& layer : trace.layers) {
    if (layer.layer <= previous || layer.layer >= trace.model.num_layers) {
      refuse(fmt::format("layer {} after layer {}: layers ascend and are below num_layers = {}",
                         layer.layer, previous, trace.model.num_layers));
    }
    previous = layer.layer;
    check_tensor(trace, layer, "q", layer.q, trace.model.query_heads);
    check_tensor(trace, layer, "k", layer.k, trace.model.kv_heads);
    check_tensor(trace, layer, "v", layer.v, trace.model.kv_heads);
  }
}

// A new file beside the target; removed unless it was renamed to it.
class partial_file {
 public:
  explicit partial_file(const std::filesystem::path& target) : target_(target) {
    static std::atomic<unsigned> counter = 0;
    int descriptor = -1;
    do {
      path_ = target;
      path_.replace_filename(fmt::format(".{}.{}.{}.partial", target.filename().string(), getpid(),
                                         counter.fetch_add(1)));
      descriptor = open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    } while (descriptor < 0 && errno == EEXIST);
    if (descriptor < 0) {
      const int reason = errno;
      path_.clear();
      fail(std::generic_category().message(reason));
    }
    ::close(descriptor);
  }
  partial_file(const partial_file&) = delete;
  partial_file& operator=(const partial_file&) = delete;
  ~partial_file() {
    if (!path_.empty()) unlink(path_.c_str());
  }

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

  void move_to_target() {
    if (const int reason = sync(path_, O_WRONLY); reason != 0) {
      fail(std::generic_category().message(reason));
    }
    std::error_code failure;
    std::filesystem::rename(path_, target_, failure);
    if (failure) fail(failure.message());
    path_.clear();
    const std::filesystem::path folder = target_.parent_path();
    sync(folder.empty() ? "." : folder, O_RDONLY | O_DIRECTORY);  // not every file system can
  }

  [[noreturn]] void fail(const std::string& reason) const {
    throw trace_error(fmt::format(
        "{}: cannot be written: {}; check the folder, its permissions and the free space",
        target_.string(), reason));
  }

 private:
  // 0 or the reason.
  static int sync(const std::filesystem::path& path, int flags) {
    const int descriptor = open(path.c_str(), flags | O_CLOEXEC);
    if (descriptor < 0) return errno;
    const int reason = fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    return reason;
  }

  std::filesystem::path target_;
  std::filesystem::path path_;
};

class trace_writer {
 public:
  explicit trace_writer(const partial_file& partial) : partial_(partial) {}

  void write(const attention_trace& trace) {
    const hdf5_id access = take(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    check(H5Pset_libver_bounds(access.get(), H5F_LIBVER_V110, H5F_LIBVER_V110));
    check(H5Pset_file_locking(access.get(), false, true));  // nobody else knows the name
    const hdf5_id creation = take(H5Pcreate(H5P_FILE_CREATE), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));
    check(H5Pset_attr_phase_change(creation.get(), 32, 0));  // attributes lie in the object header
    hdf5_id file = take(
        H5Fcreate(partial_.path().c_str(), H5F_ACC_TRUNC, creation.get(), access.get()), H5Fclose);
    write_facts(file.get(), trace);
    hdf5_id token_ids = write_array(file.get(), "token_ids", H5T_STD_I32LE,
                                    {hsize_of(trace.num_tokens)}, trace.token_ids.data());
    finish(token_ids);
    hdf5_id layers = group(file.get(), "layers");
    for (const layer_trace& layer : trace.layers) write_layer(layers.get(), trace, layer);
    finish(layers);
    finish(file);
  }

 private:
  static hsize_t hsize_of(std::int64_t count) { return static_cast<hsize_t>(count); }

  void check(herr_t result) const {
    if (result < 0) partial_.fail(hdf5_reason());
  }

  // Closing writes what was cached; on a full disk it fails here and nowhere else.
  void finish(hdf5_id& object) const { check(object.close() ? 0 : -1); }

  [[nodiscard]] hdf5_id take(hid_t id, hdf5_id::closer close) const {
    check(id < 0 ? -1 : 0);
    return {id, close};
  }

  void write_facts(hid_t file, const attention_trace& trace) const {
    const model_facts& model = trace.model;
    string_attribute(file, "schema", schema_name);
    attribute(file, "schema_version", H5T_STD_U32LE, schema_version);
    string_attribute(file, "model_name", model.name);
    attribute(file, "num_layers", H5T_STD_I32LE, model.num_layers);
    attribute(file, "query_heads", H5T_STD_I32LE, model.query_heads);
    attribute(file, "kv_heads", H5T_STD_I32LE, model.kv_heads);
    attribute(file, "head_dim", H5T_STD_I32LE, model.head_dim);
    attribute(file, "rope_theta", H5T_IEEE_F64LE, model.rope_theta);
    attribute(file, "softmax_scale", H5T_IEEE_F64LE, model.softmax_scale);
    attribute(file, "num_tokens", H5T_STD_I64LE, trace.num_tokens);
    attribute(file, "prompt_length", H5T_STD_I64LE, trace.prompt_length);
    string_attribute(file, "provenance", trace.provenance);
    string_attribute(file, "license", trace.license);
  }

  void write_layer(hid_t layers, const attention_trace& trace, const layer_trace& layer) const {
    hdf5_id at = group(layers, std::to_string(layer.layer));
    attribute(at.get(), "layer", H5T_STD_I32LE, layer.layer);
    const hdf5_id type = half_type();
    const auto tensor = [&](const char* name, const std::vector<half_bits>& values, int heads) {
      hdf5_id dataset =
          write_array(at.get(), name, type.get(),
                      {hsize_of(trace.num_tokens), hsize_of(heads), hsize_of(trace.model.head_dim)},
                      values.data());
      string_attribute(dataset.get(), "dtype", dtype_name);
      string_attribute(dataset.get(), "axes", axes_name);
      finish(dataset);
    };
    tensor("q", layer.q, trace.model.query_heads);
    tensor("k", layer.k, trace.model.kv_heads);
    tensor("v", layer.v, trace.model.kv_heads);
    finish(at);
  }

  [[nodiscard]] hdf5_id group(hid_t parent, const std::string& name) const {
    const hdf5_id creation = take(H5Pcreate(H5P_GROUP_CREATE), H5Pclose);
    check(H5Pset_obj_track_times(creation.get(), false));
    return take(H5Gcreate2(parent, name.c_str(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
                H5Gclose);
  }

  // The type in memory is the type in the file.
  template <class Value>
  void attribute(hid_t object, const char* name, hid_t type, Value value) const {
    write_attribute(object, name, type, &value);
  }

  void string_attribute(hid_t object, const char* name, std::string_view text) const {
    const std::string stored = text.empty() ? std::string(1, '\0') : std::string(text);
    const hdf5_id type = take(H5Tcopy(H5T_C_S1), H5Tclose);
    check(H5Tset_size(type.get(), stored.size()));
    check(H5Tset_strpad(type.get(), H5T_STR_NULLPAD));
    check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
    write_attribute(object, name, type.get(), stored.data());
  }

  void write_attribute(hid_t object, const char* name, hid_t type, const void* value) const {
    const hdf5_id scalar = take(H5Screate(H5S_SCALAR), H5Sclose);
    const hdf5_id at =
        take(H5Acreate2(object, name, type, scalar.get(), H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
    check(H5Awrite(at.get(), type, value));
  }

  hdf5_id write_array(hid_t parent, const char* name, hid_t type, const std::vector<hsize_t>& shape,
                      const void* values) const {
    std::vector<hsize_t> chunk = shape;
    hsize_t token_bytes = H5Tget_size(type);
    for (std::size_t axis = 1; axis < shape.size(); ++axis) token_bytes *= shape[axis];
    const hsize_t longest = std::min<hsize_t>(tokens_per_chunk, max_chunk_bytes / token_bytes);
    chunk[0] = std::clamp<hsize_t>(chunk[0], 1, longest);
    const int rank = static_cast<int>(shape.size());
    const hdf5_id creation = take(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    check(H5Pset_chunk(creation.get(), rank, chunk.data()));
    check(H5Pset_shuffle(creation.get()));
    check(H5Pset_deflate(creation.get(), gzip_level));
    check(H5Pset_fletcher32(creation.get()));
    check(H5Pset_obj_track_times(creation.get(), false));
    const hdf5_id space = take(H5Screate_simple(rank, shape.data(), nullptr), H5Sclose);
    hdf5_id dataset =
        take(H5Dcreate2(parent, name, type, space.get(), H5P_DEFAULT, creation.get(), H5P_DEFAULT),
             H5Dclose);
    if (shape[0] != 0) {
      check(H5Dwrite(dataset.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    }
    return dataset;
  }

  const partial_file& partial_;
};

}  // namespace

void write_attention_trace(const std::filesystem::path& file, const attention_trace& trace) {
  check_trace(trace);
  const quiet_hdf5 quiet;
  partial_file partial(file);
  trace_writer(partial).write(trace);
  partial.move_to_target();
}

}  // namespace kvproof::traces
