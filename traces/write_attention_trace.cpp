// Writer of schema v1 (traces/README.md): validates, writes a temporary file beside the target,
// syncs, renames.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include "traces/attention_trace.hpp"
#include "traces/attention_trace_hdf5.hpp"

namespace kvproof::traces {
namespace {

constexpr hsize_t tokens_per_chunk = 128;
constexpr unsigned deflate_level = 6;

void validate(const attention_trace& t) {
  const auto require = [](bool ok, std::string_view what) {
    if (!ok) throw spec::contract_error(fmt::format("attention trace: {}", what));
  };
  const model_facts& m = t.model;
  require(m.num_layers > 0 && m.query_heads > 0 && m.kv_heads > 0 && m.head_dim > 0,
          "model facts must be positive");
  require(m.query_heads % m.kv_heads == 0, "query_heads must be a multiple of kv_heads");
  require(t.prompt_length >= 0 && t.prompt_length <= t.num_tokens,
          "prompt_length must be in 0..num_tokens");
  require(std::ssize(t.token_ids) == t.num_tokens, "token_ids must have num_tokens entries");
  require(!t.layers.empty(), "at least one layer is needed");
  std::set<int> seen;
  for (const layer_trace& layer : t.layers) {
    require(layer.layer >= 0 && layer.layer < m.num_layers && seen.insert(layer.layer).second,
            "layer indices must be distinct and inside the model");
    const std::int64_t rows = t.num_tokens * m.head_dim;
    require(std::ssize(layer.q) == rows * m.query_heads &&
                std::ssize(layer.k) == rows * m.kv_heads &&
                std::ssize(layer.v) == rows * m.kv_heads,
            "q, k, v must have the shapes of the model facts");
    for (const std::vector<half_bits>* x : {&layer.q, &layer.k, &layer.v}) {
      require(
          std::none_of(x->begin(), x->end(), [](half_bits h) { return (h & 0x7c00) == 0x7c00; }),
          "values must be finite");
    }
  }
}

class writer {
 public:
  explicit writer(const std::filesystem::path& temporary) : name_(temporary.string()) {
    const hdf5::properties access(H5Pcreate(H5P_FILE_ACCESS));
    H5Pset_libver_bounds(access.get(), H5F_LIBVER_EARLIEST, H5F_LIBVER_V18);
    file_ = hdf5::file(check(H5Fcreate(name_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get())));
  }

  void write(const attention_trace& t) {
    const model_facts& m = t.model;
    text(file_.get(), "schema", std::string(hdf5::schema_name));
    number(file_.get(), "schema_version", H5T_STD_U32LE, &hdf5::schema_version);
    text(file_.get(), "model_name", m.name);
    number(file_.get(), "num_layers", H5T_STD_I32LE, &m.num_layers);
    number(file_.get(), "query_heads", H5T_STD_I32LE, &m.query_heads);
    number(file_.get(), "kv_heads", H5T_STD_I32LE, &m.kv_heads);
    number(file_.get(), "head_dim", H5T_STD_I32LE, &m.head_dim);
    number(file_.get(), "rope_theta", H5T_IEEE_F64LE, &m.rope_theta);
    number(file_.get(), "softmax_scale", H5T_IEEE_F64LE, &m.softmax_scale);
    number(file_.get(), "num_tokens", H5T_STD_I64LE, &t.num_tokens);
    number(file_.get(), "prompt_length", H5T_STD_I64LE, &t.prompt_length);
    text(file_.get(), "provenance", t.provenance);
    text(file_.get(), "license", t.license);
    const auto tokens = static_cast<hsize_t>(t.num_tokens);
    data(file_.get(), "token_ids", H5T_STD_I32LE, {tokens}, t.token_ids.data());
    const hdf5::group layers = create_group(file_.get(), "layers");
    std::vector<const layer_trace*> ascending;
    for (const layer_trace& layer : t.layers) ascending.push_back(&layer);
    std::sort(ascending.begin(), ascending.end(),
              [](const layer_trace* a, const layer_trace* b) { return a->layer < b->layer; });
    for (const layer_trace* layer : ascending) {
      const hdf5::group g = create_group(layers.get(), std::to_string(layer->layer));
      number(g.get(), "layer", H5T_STD_I32LE, &layer->layer);
      tensor(g.get(), "q",
             {tokens, static_cast<hsize_t>(m.query_heads), static_cast<hsize_t>(m.head_dim)},
             layer->q);
      tensor(g.get(), "k",
             {tokens, static_cast<hsize_t>(m.kv_heads), static_cast<hsize_t>(m.head_dim)},
             layer->k);
      tensor(g.get(), "v",
             {tokens, static_cast<hsize_t>(m.kv_heads), static_cast<hsize_t>(m.head_dim)},
             layer->v);
    }
    check(H5Fflush(file_.get(), H5F_SCOPE_GLOBAL));
  }

 private:
  template <typename T>
  T check(T result) const {
    if (result < 0)
      throw spec::error(
          fmt::format("{}: cannot be written ({}); check folder, permissions and free space", name_,
                      hdf5::last_error()));
    return result;
  }

  hdf5::group create_group(hid_t at, const std::string& name) const {
    const hdf5::properties p(H5Pcreate(H5P_GROUP_CREATE));
    check(H5Pset_obj_track_times(p.get(), false));
    return hdf5::group(check(H5Gcreate2(at, name.c_str(), H5P_DEFAULT, p.get(), H5P_DEFAULT)));
  }

  void number(hid_t at, const char* name, hid_t type, const void* value) const {
    const hdf5::dataspace space(check(H5Screate(H5S_SCALAR)));
    const hdf5::attribute a(
        check(H5Acreate2(at, name, type, space.get(), H5P_DEFAULT, H5P_DEFAULT)));
    check(H5Awrite(a.get(), type, value));
  }

  void text(hid_t at, const char* name, const std::string& value) const {
    const hdf5::datatype type(check(H5Tcopy(H5T_C_S1)));
    check(H5Tset_size(type.get(), H5T_VARIABLE));
    check(H5Tset_cset(type.get(), H5T_CSET_UTF8));
    const char* const pointer = value.c_str();
    number(at, name, type.get(), &pointer);
  }

  hdf5::dataset data(hid_t at, const char* name, hid_t type, const std::vector<hsize_t>& dims,
                     const void* values) const {
    // An empty dataset needs an extensible axis: chunks of a fixed axis may not exceed it.
    std::vector<hsize_t> limit = dims, chunk = dims;
    if (dims[0] == 0) limit[0] = H5S_UNLIMITED;
    chunk[0] = std::clamp<hsize_t>(dims[0], 1, tokens_per_chunk);
    const int rank = static_cast<int>(dims.size());
    const hdf5::dataspace space(check(H5Screate_simple(rank, dims.data(), limit.data())));
    const hdf5::properties p(check(H5Pcreate(H5P_DATASET_CREATE)));
    check(H5Pset_chunk(p.get(), rank, chunk.data()));
    check(H5Pset_shuffle(p.get()));
    check(H5Pset_deflate(p.get(), deflate_level));
    check(H5Pset_fletcher32(p.get()));
    check(H5Pset_obj_track_times(p.get(), false));
    hdf5::dataset d(
        check(H5Dcreate2(at, name, type, space.get(), H5P_DEFAULT, p.get(), H5P_DEFAULT)));
    if (dims[0] > 0) check(H5Dwrite(d.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values));
    return d;
  }

  void tensor(hid_t at, const char* name, const std::vector<hsize_t>& dims,
              const std::vector<half_bits>& values) const {
    const hdf5::datatype half = hdf5::half_type();
    const hdf5::dataset d = data(at, name, half.get(), dims, values.data());
    text(d.get(), "dtype", std::string(hdf5::element_name));
    text(d.get(), "axes", std::string(hdf5::tensor_axes));
  }

  std::string name_;
  hdf5::silence silence_;
  hdf5::file file_;
};

// Makes the bytes durable before the rename makes them visible.
void sync_file(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool ok = descriptor >= 0 && ::fsync(descriptor) == 0;
  if (descriptor >= 0) ::close(descriptor);
  if (!ok)
    throw spec::error(fmt::format("{}: cannot be synced to disk; check the device", file.string()));
}

}  // namespace

void write_attention_trace(const std::filesystem::path& file, const attention_trace& trace) {
  validate(trace);
  std::filesystem::path temporary = file;
  temporary += fmt::format(".{}.tmp", ::getpid());
  try {
    writer(temporary).write(trace);
    sync_file(temporary);
    std::filesystem::rename(temporary, file);
  } catch (...) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw;
  }
}

}  // namespace kvproof::traces
