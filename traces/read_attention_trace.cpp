// Reader of schema v1 (traces/README.md). Everything is validated before a byte is believed:
// structure first, sizes against the file, then the data, which are read as the 16-bit integers
// they are stored as.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <set>

#include "traces/attention_trace.hpp"
#include "traces/attention_trace_hdf5.hpp"

namespace kvproof::traces {
namespace {

constexpr std::array<unsigned char, 8> hdf5_signature = {0x89, 'H',  'D',  'F',
                                                         '\r', '\n', 0x1a, '\n'};
constexpr std::string_view record_again = "record or convert the trace again";
constexpr std::int64_t most_compression =
    1100;  // deflate cannot do better: bounds what a file can hold

class reader {
 public:
  explicit reader(const std::filesystem::path& path) : path_(path.string()) {}

  attention_trace read() {
    open();
    attention_trace trace;
    check_schema();
    model_facts& m = trace.model;
    m.name = text_attribute(file_.get(), "/", "model_name");
    m.num_layers = int_attribute<int>(file_.get(), "/", "num_layers");
    m.query_heads = int_attribute<int>(file_.get(), "/", "query_heads");
    m.kv_heads = int_attribute<int>(file_.get(), "/", "kv_heads");
    m.head_dim = int_attribute<int>(file_.get(), "/", "head_dim");
    m.rope_theta = double_attribute("rope_theta");
    m.softmax_scale = double_attribute("softmax_scale");
    trace.num_tokens = int_attribute<std::int64_t>(file_.get(), "/", "num_tokens");
    trace.prompt_length = int_attribute<std::int64_t>(file_.get(), "/", "prompt_length");
    trace.provenance = text_attribute(file_.get(), "/", "provenance");
    trace.license = text_attribute(file_.get(), "/", "license");
    check_facts(trace);
    read_token_ids(trace);
    read_layers(trace);
    return trace;
  }

 private:
  template <typename Error>
  [[noreturn]] void fail(std::string_view where, std::string_view what,
                         std::string_view remedy) const {
    throw Error(fmt::format("{}: {}: {}; {}", path_, where, what, remedy));
  }

  void open() {
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored)) {
      fail<not_hdf5_error>("/", "no such file", "check the path");
    }
    if (!std::filesystem::is_regular_file(path_, ignored)) {
      fail<not_hdf5_error>("/", "not a regular file", "name an HDF5 trace file");
    }
    size_bytes_ = static_cast<std::int64_t>(std::filesystem::file_size(path_, ignored));
    std::array<char, 8> head{};
    std::ifstream in(path_, std::ios::binary);
    if (!in) fail<not_hdf5_error>("/", "cannot be opened for reading", "check its permissions");
    in.read(head.data(), head.size());
    if (in.gcount() == 0) fail<not_hdf5_error>("/", "the file is empty", record_again);
    if (!std::equal(head.begin(), head.begin() + in.gcount(), hdf5_signature.begin(),
                    [](char a, unsigned char b) { return static_cast<unsigned char>(a) == b; })) {
      fail<not_hdf5_error>("/", "not an HDF5 file (no HDF5 signature)",
                           "name a trace written by kvproof");
    }
    file_ = hdf5::file(H5Fopen(path_.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT));
    if (!file_.valid()) {
      fail<truncated_error>("/",
                            fmt::format("truncated or damaged HDF5 file of {} bytes ({})",
                                        size_bytes_, hdf5::last_error()),
                            "copy the file again or record it again");
    }
  }

  void check_schema() {
    const std::string schema = text_attribute(file_.get(), "/", "schema");
    if (schema != hdf5::schema_name) {
      fail<schema_error>(
          "/", fmt::format("attribute schema is '{}', expected '{}'", schema, hdf5::schema_name),
          "name an attention trace");
    }
    const auto version = int_attribute<std::int64_t>(file_.get(), "/", "schema_version");
    if (version != hdf5::schema_version) {
      fail<schema_error>(
          "/",
          fmt::format("schema_version is {}, this kvproof reads {}", version, hdf5::schema_version),
          "use a matching kvproof");
    }
  }

  void check_facts(const attention_trace& t) const {
    const model_facts& m = t.model;
    if (m.num_layers < 1 || m.query_heads < 1 || m.kv_heads < 1 || m.head_dim < 1 ||
        m.num_layers > 4096 || m.query_heads > 4096 || m.head_dim > 4096) {
      fail<schema_error>(
          "/",
          fmt::format(
              "num_layers {}, query_heads {}, kv_heads {}, head_dim {}: each must be in 1..4096",
              m.num_layers, m.query_heads, m.kv_heads, m.head_dim),
          record_again);
    }
    if (m.query_heads % m.kv_heads != 0) {
      fail<schema_error>(
          "/",
          fmt::format("query_heads {} is not a multiple of kv_heads {}", m.query_heads, m.kv_heads),
          record_again);
    }
    if (t.num_tokens < 0 || t.prompt_length < 0 || t.prompt_length > t.num_tokens) {
      fail<schema_error>("/",
                         fmt::format("prompt_length {} and num_tokens {} contradict each other",
                                     t.prompt_length, t.num_tokens),
                         record_again);
    }
    if (!(m.softmax_scale > 0 && m.softmax_scale < 1e6) ||
        !(m.rope_theta >= 0 && m.rope_theta < 1e30)) {
      fail<schema_error>("/",
                         fmt::format("softmax_scale {} or rope_theta {} out of range",
                                     m.softmax_scale, m.rope_theta),
                         record_again);
    }
    const std::int64_t row = (std::int64_t{m.query_heads} + 2 * m.kv_heads) * m.head_dim * 2;
    if (t.num_tokens > size_bytes_ * most_compression / row + 1) {
      fail<schema_error>(
          "/",
          fmt::format("num_tokens {} cannot fit in a file of {} bytes", t.num_tokens, size_bytes_),
          record_again);
    }
  }

  hdf5::attribute open_attribute(hid_t at, std::string_view where, const std::string& name) const {
    hdf5::attribute a(H5Aexists(at, name.c_str()) > 0 ? H5Aopen(at, name.c_str(), H5P_DEFAULT)
                                                      : -1);
    if (!a.valid())
      fail<schema_error>(where, fmt::format("attribute {} is missing", name), record_again);
    const hdf5::dataspace space(H5Aget_space(a.get()));
    if (H5Sget_simple_extent_npoints(space.get()) != 1) {
      fail<schema_error>(where, fmt::format("attribute {} is not a scalar", name), record_again);
    }
    return a;
  }

  // Any integer type: converted by HDF5, which is exact for integers, then checked for range.
  template <typename T>
  T int_attribute(hid_t at, std::string_view where, const std::string& name) const {
    const hdf5::attribute a = open_attribute(at, where, name);
    const hdf5::datatype type(H5Aget_type(a.get()));
    std::int64_t value = 0;
    if (H5Tget_class(type.get()) != H5T_INTEGER || H5Aread(a.get(), H5T_NATIVE_INT64, &value) < 0) {
      fail<schema_error>(where, fmt::format("attribute {} is not an integer", name), record_again);
    }
    if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max()) {
      fail<schema_error>(where, fmt::format("attribute {} = {} is out of range", name, value),
                         record_again);
    }
    return static_cast<T>(value);
  }

  double double_attribute(const std::string& name) const {
    const hdf5::attribute a = open_attribute(file_.get(), "/", name);
    const hdf5::datatype type(H5Aget_type(a.get()));
    double value = 0;
    if (H5Tequal(type.get(), H5T_IEEE_F64LE) <= 0 || H5Aread(a.get(), H5T_IEEE_F64LE, &value) < 0) {
      fail<schema_error>("/", fmt::format("attribute {} is not a 64-bit float", name),
                         record_again);
    }
    return value;
  }

  std::string text_attribute(hid_t at, std::string_view where, const std::string& name) const {
    const hdf5::attribute a = open_attribute(at, where, name);
    const hdf5::datatype type(H5Aget_type(a.get()));
    if (H5Tget_class(type.get()) != H5T_STRING) {
      fail<schema_error>(where, fmt::format("attribute {} is not a string", name), record_again);
    }
    std::string value;
    bool ok = false;
    if (H5Tis_variable_str(type.get()) > 0) {
      char* text = nullptr;
      ok = H5Aread(a.get(), type.get(), &text) >= 0 && text != nullptr;
      if (ok) value = text;
      if (text != nullptr) H5free_memory(text);
    } else {
      value.resize(H5Tget_size(type.get()));
      ok = H5Aread(a.get(), type.get(), value.data()) >= 0;
      value.resize(std::min(value.find('\0'), value.size()));
    }
    if (!ok)
      fail<truncated_error>(
          where, fmt::format("attribute {} cannot be read ({})", name, hdf5::last_error()),
          record_again);
    return value;
  }

  hdf5::dataset open_dataset(hid_t at, const std::string& where, const std::string& name) const {
    hdf5::dataset d(H5Lexists(at, name.c_str(), H5P_DEFAULT) > 0
                        ? H5Dopen2(at, name.c_str(), H5P_DEFAULT)
                        : -1);
    if (!d.valid()) fail<schema_error>(where, "dataset is missing or damaged", record_again);
    return d;
  }

  void check_shape(const hdf5::dataset& d, const std::string& where,
                   const std::vector<hsize_t>& expected) const {
    const hdf5::dataspace space(H5Dget_space(d.get()));
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank != static_cast<int>(expected.size())) {
      fail<schema_error>(where, fmt::format("rank {}, expected {}", rank, expected.size()),
                         record_again);
    }
    std::vector<hsize_t> dims(expected.size());
    H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
    if (dims != expected) {
      fail<schema_error>(where,
                         fmt::format("shape [{}] contradicts the attributes, which say [{}]",
                                     fmt::join(dims, ", "), fmt::join(expected, ", ")),
                         record_again);
    }
  }

  void read_data(const hdf5::dataset& d, const std::string& where, hid_t type, void* to) const {
    if (H5Dread(d.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, to) < 0) {
      fail<truncated_error>(where,
                            fmt::format("data are truncated or damaged ({})", hdf5::last_error()),
                            "copy the file again or record it again");
    }
  }

  void read_token_ids(attention_trace& trace) const {
    const std::string where = "/token_ids";
    const hdf5::dataset d = open_dataset(file_.get(), where, "token_ids");
    const hdf5::datatype type(H5Dget_type(d.get()));
    if (H5Tequal(type.get(), H5T_STD_I32LE) <= 0) {
      fail<element_type_error>(where, "element type is not a 32-bit little-endian integer",
                               record_again);
    }
    check_shape(d, where, {static_cast<hsize_t>(trace.num_tokens)});
    trace.token_ids.resize(static_cast<std::size_t>(trace.num_tokens));
    if (trace.num_tokens > 0) read_data(d, where, H5T_STD_I32LE, trace.token_ids.data());
  }

  void read_layers(attention_trace& trace) const {
    const hdf5::group layers(H5Lexists(file_.get(), "layers", H5P_DEFAULT) > 0
                                 ? H5Gopen2(file_.get(), "layers", H5P_DEFAULT)
                                 : -1);
    if (!layers.valid()) fail<schema_error>("/layers", "group is missing or damaged", record_again);
    std::vector<std::string> names;
    const auto collect = [](hid_t, const char* name, const H5L_info_t*, void* to) -> herr_t {
      static_cast<std::vector<std::string>*>(to)->emplace_back(name);
      return 0;
    };
    if (H5Literate(layers.get(), H5_INDEX_NAME, H5_ITER_INC, nullptr, collect, &names) < 0) {
      fail<truncated_error>("/layers", fmt::format("group is damaged ({})", hdf5::last_error()),
                            record_again);
    }
    std::set<int> seen;
    for (const std::string& name : names) {
      const std::string where = "/layers/" + name;
      const hdf5::group g(H5Gopen2(layers.get(), name.c_str(), H5P_DEFAULT));
      if (!g.valid()) fail<schema_error>(where, "not a group, or damaged", record_again);
      layer_trace layer;
      layer.layer = int_attribute<int>(g.get(), where, "layer");
      if (layer.layer < 0 || layer.layer >= trace.model.num_layers) {
        fail<schema_error>(
            where,
            fmt::format("layer {} of a model of {} layers", layer.layer, trace.model.num_layers),
            record_again);
      }
      if (!seen.insert(layer.layer).second) {
        fail<schema_error>(where, fmt::format("layer {} is there twice", layer.layer),
                           record_again);
      }
      layer.q = read_tensor(trace, g.get(), where, "q", layer.layer, trace.model.query_heads);
      layer.k = read_tensor(trace, g.get(), where, "k", layer.layer, trace.model.kv_heads);
      layer.v = read_tensor(trace, g.get(), where, "v", layer.layer, trace.model.kv_heads);
      trace.layers.push_back(std::move(layer));
    }
    if (trace.layers.empty()) fail<schema_error>("/layers", "no layer is recorded", record_again);
    std::sort(trace.layers.begin(), trace.layers.end(),
              [](const layer_trace& a, const layer_trace& b) { return a.layer < b.layer; });
  }

  std::vector<half_bits> read_tensor(const attention_trace& trace, hid_t group,
                                     const std::string& parent, const std::string& name, int layer,
                                     int heads) const {
    const std::string where = parent + "/" + name;
    const hdf5::dataset d = open_dataset(group, where, name);
    const hdf5::datatype type(H5Dget_type(d.get())), half = hdf5::half_type();
    if (H5Aexists(d.get(), "dtype") <= 0) {
      fail<element_type_error>(where, "no dtype attribute: 16 bits can be fp16 or bf16",
                               "declare dtype = \"float16\" if it is fp16");
    }
    const std::string declared = text_attribute(d.get(), where, "dtype");
    if (declared != hdf5::element_name) {
      fail<element_type_error>(
          where, fmt::format("dtype is '{}', only '{}' is supported", declared, hdf5::element_name),
          "convert the trace to fp16");
    }
    if (H5Tequal(type.get(), half.get()) <= 0) {
      fail<element_type_error>(
          where,
          "dtype says float16, but the file's element type is not IEEE binary16 little-endian",
          "store it as '<f2'");
    }
    check_shape(d, where,
                {static_cast<hsize_t>(trace.num_tokens), static_cast<hsize_t>(heads),
                 static_cast<hsize_t>(trace.model.head_dim)});
    std::vector<half_bits> x(
        static_cast<std::size_t>(trace.num_tokens * heads * trace.model.head_dim));
    if (!x.empty()) read_data(d, where, half.get(), x.data());
    const auto bad =
        std::find_if(x.begin(), x.end(), [](half_bits h) { return (h & 0x7c00) == 0x7c00; });
    if (bad != x.end()) {
      const std::int64_t i = bad - x.begin(), channel = i % trace.model.head_dim,
                         row = i / trace.model.head_dim;
      fail<non_finite_error>(where,
                             fmt::format("{} (0x{:04x}) at layer {}, token {}, head {}, channel {}",
                                         (*bad & 0x3ff) != 0 ? "NaN" : "infinity", *bad, layer,
                                         row / heads, row % heads, channel),
                             "record it in a wider format or clip before fp16");
    }
    return x;
  }

  std::string path_;
  std::int64_t size_bytes_ = 0;
  hdf5::silence silence_;
  hdf5::file file_;
};

}  // namespace

attention_trace read_attention_trace(const std::filesystem::path& file) {
  return reader(file).read();
}

}  // namespace kvproof::traces
