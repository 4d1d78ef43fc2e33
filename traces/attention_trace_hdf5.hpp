// What reader and writer of attention traces share: handles of the HDF5 C library and the names of
// schema v1.
#pragma once

#include <hdf5.h>

#include <string>
#include <string_view>
#include <utility>

namespace kvproof::traces::hdf5 {

inline constexpr std::string_view schema_name = "kvproof.attention_trace";
inline constexpr std::uint32_t schema_version = 1;
inline constexpr std::string_view element_name = "float16";
inline constexpr std::string_view tensor_axes = "token, head, channel";

// Owns an HDF5 identifier; `Close` is the function that belongs to its kind.
template <herr_t (*Close)(hid_t)>
class handle {
 public:
  handle() = default;
  explicit handle(hid_t id) : id_(id) {}
  handle(handle&& other) noexcept : id_(std::exchange(other.id_, -1)) {}
  handle& operator=(handle&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  handle(const handle&) = delete;
  handle& operator=(const handle&) = delete;
  ~handle() {
    if (id_ >= 0) Close(id_);
  }
  [[nodiscard]] hid_t get() const { return id_; }
  [[nodiscard]] bool valid() const { return id_ >= 0; }

 private:
  hid_t id_ = -1;
};
using file = handle<H5Fclose>;
using group = handle<H5Gclose>;
using dataset = handle<H5Dclose>;
using dataspace = handle<H5Sclose>;
using datatype = handle<H5Tclose>;
using attribute = handle<H5Aclose>;
using properties = handle<H5Pclose>;

// IEEE binary16, little-endian: what h5py and numpy call '<f2'.
[[nodiscard]] datatype half_type();

// Keeps HDF5 from printing its error stack for the life of the object; errors become exceptions
// instead.
class silence {
 public:
  silence() {
    H5Eget_auto2(H5E_DEFAULT, &function_, &data_);
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  }
  ~silence() { H5Eset_auto2(H5E_DEFAULT, function_, data_); }
  silence(const silence&) = delete;
  silence& operator=(const silence&) = delete;

 private:
  H5E_auto2_t function_ = nullptr;
  void* data_ = nullptr;
};

// The innermost message of the current error stack, for the end of an error line.
[[nodiscard]] std::string last_error();

}  // namespace kvproof::traces::hdf5
